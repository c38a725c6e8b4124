"""A rebase to decide on: what it changes, what the proofs say, and whether a person must look."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.carry import Carrier
from tools.contract import ContractReport, Finding, Severity
from tools.errors import BadInput
from tools.git import GitTree
from tools.maintain.branch import Published, Repository, publish
from tools.maintain.contracts import (
    ContractRequest,
    carried_contract,
    check_contract,
    client_modules,
)
from tools.maintain.matrix import read_expected
from tools.maintain.rebase import Action, Rebased, rebase
from tools.maintain.resolve import Resolving, lay_out
from tools.smoke import verified
from tools.smoke.verified import Cell, CellName, Verified
from tools.upstream import Store, Upstream, list_releases, parse_ref

Notify = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """What to rebase.

    Attributes:
        store: Where upstream is.
        carrier: Carries the series as it is.
        root: The project's root.
        upstream: The new base.
        supported: Every release that is served, oldest first.
        directory: Where the first conflict is laid out.
        every: See :func:`tools.maintain.rebase.rebase`.
        dry_run: Do it all, but move and write nothing.
    """

    store: Store
    carrier: Carrier
    root: Path
    upstream: Upstream
    supported: tuple[Upstream, ...]
    directory: Path
    every: bool = False
    dry_run: bool = False


@dataclass(frozen=True)
class Contracts:
    """What the contract check found on the new base.

    Attributes:
        report: All of it, the comparison with the release before included.
        previous: The release before, "" where there is none.
        fresh: The findings that the release before does not have.
    """

    report: ContractReport
    previous: str
    fresh: tuple[Finding, ...]


@dataclass(frozen=True)
class Smoked:
    """A smoke of the new base that is on record; ``current`` where it ran on this very tree."""

    name: CellName
    cell: Cell
    current: bool


@dataclass(frozen=True)
class Proposal:
    """Everything that is known of a rebase.

    Attributes:
        rebased: The series on its new base.
        contracts: None where conflicts leave nothing to check.
        smokes: The smokes on record.
        published: The commit; None where nothing has to be written.
        resolving: The first conflict, laid out; None where there is none or it could not be.
        unlaid: Why a conflict could not be laid out, or "".
    """

    rebased: Rebased
    contracts: Contracts | None
    smokes: tuple[Smoked, ...]
    published: Published | None = None
    resolving: Resolving | None = None
    unlaid: str = ""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why a person must look before this is merged.

        None where only context has drifted, all of the contract is kept, and a smoke of this very
        tree passed: what is not known is a reason too.
        """
        found = [
            f"{m.outcome.name} is in conflict: {m.outcome.rule}" for m in self.rebased.conflicts
        ]
        found += [f"{m.outcome.name} does something else now" for m in self.rebased.changed]
        for move in self.rebased.moves:
            if move.action is Action.DROPPED:
                found.append(f"{move.outcome.name} leaves the series")
            elif move.action is Action.VARIANT:
                found.append(f"{move.outcome.name} has a new variant")
        if self.contracts is None:
            found.append("the contract was not checked")
        else:
            errors = len(self.contracts.report.errors)
            found += [f"{errors} contract errors"] if errors else []
            warnings = [f for f in self.contracts.fresh if f.severity is Severity.WARNING]
            found += [f"{len(warnings)} new contract warnings"] if warnings else []
            unchecked = "; ".join(self.contracts.report.unchecked)
            found += [f"the contract was checked in part: {unchecked}"] if unchecked else []
        for smoke in self.smokes:
            if smoke.current and not smoke.cell.passed:
                found.append(f"the smoke fails on {smoke.name.device}")
        if not any(smoke.current for smoke in self.smokes):
            found.append("no smoke of this very tree is on record")
        return tuple(found)

    @property
    def mergeable_unattended(self) -> bool:
        """Whether automation may merge this: only lines around patches changed, and all passed."""
        return not self.reasons

    @property
    def failed(self) -> bool:
        """Whether the series does not stand on its new base."""
        errors = self.contracts.report.errors if self.contracts else ()
        return bool(self.rebased.conflicts or errors)


def propose(request: Request, notify: Notify) -> Proposal:
    """Move the series onto a new base, check it there, and put it on the bot's branch.

    Args:
        request: What to rebase.
        notify: Told what takes time.

    Raises:
        BadInput: ``patches/`` or the overlay is not as ``HEAD`` has it, or someone is on the
            branch.
        Busy: Another run is at work on the same branch or directory.
        CheckFailed: The branch holds a commit of a person's.
        ToolError: See the parts.
    """
    repository = Repository.at(request.root)
    if not request.dry_run:
        repository.check_clean()
    patches = request.root / "patches"
    expected = read_expected(patches / "expected.toml")
    ref, version = request.upstream.ref.name, request.upstream.ref.version
    notify(f"carrying to {len(request.supported)} supported releases and to {ref}")
    rebased = rebase(
        request.carrier,
        patches,
        request.upstream,
        request.supported,
        expected,
        every=request.every,
    )
    contracts = None
    if not rebased.conflicts:
        notify(f"checking the contract on {ref}")
        older = [
            u
            for u in request.supported
            if u.ref.version and (not version or u.ref.version < version)
        ]
        previous = older[-1] if older else None
        cache = request.store.settings.cache
        contracts = compare_contracts(request.carrier, rebased, previous, cache, notify)
    record = verified.load(request.root / verified.FILE)
    smokes = smokes_of(record.joined(verified.load(request.root / verified.WATCHED)), rebased)
    published = None
    if rebased.files:
        files = {f"patches/{name}": content for name, content in rebased.files.items()}
        message = _message(rebased)
        published = publish(repository, files, message, dry_run=request.dry_run)
    resolving, unlaid = None, ""
    if rebased.conflicts and not request.dry_run:
        passing = frozenset(step for step, at in expected if at == ref)
        stop = request.carrier.stop(request.upstream, passing=passing)
        try:
            resolving = lay_out(request.store.git, stop, request.directory) if stop else None
        except BadInput as error:
            unlaid = error.message
    return Proposal(rebased, contracts, smokes, published, resolving, unlaid)


def _message(rebased: Rebased) -> str:
    """Return the message of the bot's commit."""
    ref = rebased.carried.upstream.ref.name
    rows = [
        f"{move.outcome.name}: {move.action}{f' ({move.note})' if move.note else ''}"
        for move in rebased.moves
        if move.action not in (Action.KEPT, Action.CONFLICT)
    ]
    rows += [f"{move.outcome.name}: still in conflict" for move in rebased.conflicts]
    return f"Rebase the series onto {ref}\n\n" + "\n".join(rows)


def supported_releases(store: Store, oldest: str) -> list[str]:
    """Return the tags of the releases from ``oldest`` on that are whole, oldest first.

    A release without an sdist counts where it is in the store: somebody asked for it.

    Raises:
        BadInput: ``oldest`` is no release.
        Unavailable: The index cannot be reached, and the store is empty.
    """
    start = parse_ref(oldest).version
    if start is None:
        raise BadInput(f"oldest-ref is no release: {oldest}", "set a tag such as v0.10.0")
    rows = [row for row in list_releases(store) if row.sdist or row.in_store]
    return [r.tag for r in rows if r.version >= start and not r.version.is_prerelease]


def compare_contracts(
    carrier: Carrier,
    rebased: Rebased,
    previous: Upstream | None,
    cache: Path,
    notify: Notify,
) -> Contracts:
    """Check the contract on the new base, and tell what the release before does not have.

    Args:
        carrier: Carries the series.
        rebased: The series on its new base.
        previous: The release before it.
        cache: Where wheels' names are kept.
        notify: Told what takes time.

    Raises:
        ToolError: See :func:`tools.maintain.contracts.check_contract`.
    """
    carried = rebased.carried
    tree = GitTree(carrier.git, carried.commit)
    ref, modules = carried.upstream.ref.name, client_modules(carrier.overlay, tree)
    if previous is None:
        report = check_contract(ContractRequest(ref, tree, modules), cache, notify)
        return Contracts(report, "", report.findings)
    before = carrier.carry(previous)
    old = GitTree(carrier.git, before.commit)
    known = carried_contract(cache, before, old)
    report = check_contract(ContractRequest(ref, tree, modules, baseline=old), cache, notify)
    keys = {finding.key for finding in known.findings} if known else set()
    fresh = tuple(finding for finding in report.findings if finding.key not in keys)
    return Contracts(report, previous.ref.name, fresh)


def smokes_of(record: Verified, rebased: Rebased) -> tuple[Smoked, ...]:
    """Return the smokes of the carried wheel on the new base that are on record.

    The files of a rebase give the very tree that was there before, so what ran on that counts.
    """
    carried = rebased.carried
    return tuple(
        Smoked(name, cell, cell.commit == carried.commit)
        for name, cell in sorted(record.cells.items())
        if name.release == carried.upstream.ref.name and name.kind == "carried"
    )
