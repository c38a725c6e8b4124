"""A release: branch and tag in a target repository, and the wheels, sums and notes beside them.

Everything is made aside first. The push, of branch and tag together, is the moment of the release;
then the files take their name with one rename. A run that is killed in between is finished by the
next one, which builds the same bytes again.
"""

import contextlib
import functools
import hashlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from tools.carry import Carried, Carrier
from tools.errors import BadInput, CheckFailed
from tools.maintain.branch import Repository
from tools.maintain.proof import constraints, prove
from tools.maintain.released import (
    Proof,
    Record,
    latest,
    record_of,
    render_changelog,
    render_record,
)
from tools.maintain.ship import WheelRequest, build_wheel, recipes_of, tool_version
from tools.maintain.target import Target, check_owned, push, read_target, write_tag
from tools.upstream import Store, Upstream
from tools.wheel.build import SUMS, BuildResult, read_sums, sign, write_sums
from tools.wheel.metadata import Amendments
from tools.wheel.publish import disk_errors, output_directory, staging

Notify = Callable[[str], None]
CHANGELOG = "CHANGELOG.md"


class State(StrEnum):
    """How a release ended."""

    PUSHED = "pushed"
    UNCHANGED = "unchanged"
    DRY_RUN = "dry-run"


@dataclass(frozen=True)
class ReleaseRequest:
    """What to release.

    Attributes:
        to: The target repository, a URL or a path.
        devices: For which devices wheels are made: ``cpu``, ``cuda``.
        out_dir: Where the files go, in a directory named after the tag.
        wheel: Upstream's wheel, where it is not to be fetched from the index.
        amendments: What METADATA shall say otherwise.
        unverified: Release also what no smoke has proved; the tag says so.
        again: Take a new number also where nothing changed.
        dry_run: Push nothing and leave no file.
        signing_key: The key that git signs the tag with, or "".
        sign_sums: The command that signs ``SHA256SUMS``, or empty.
    """

    to: str
    devices: tuple[str, ...]
    out_dir: Path
    wheel: Path | None = None
    amendments: Amendments = field(default_factory=Amendments)
    unverified: bool = False
    again: bool = False
    dry_run: bool = False
    signing_key: str = ""
    sign_sums: tuple[str, ...] = ()


@dataclass(frozen=True)
class Released:
    """A release, or what it would be.

    Attributes:
        state: How it ended.
        record: What was released.
        shown: The target repository, without credentials.
        branch: The branch's name.
        commits: Its commits above upstream's, ``id subject``, oldest first.
        message: The tag's message.
        path: The directory of the files; None on a dry run.
    """

    state: State
    record: Record
    shown: str
    branch: str
    commits: tuple[str, ...]
    message: str
    path: Path | None


def release(
    store: Store, carrier: Carrier, upstream: Upstream, request: ReleaseRequest, notify: Notify
) -> Released:
    """Release one ref into a repository.

    The next free number there is taken. Where the last release of the ref holds the same commits
    and the same wheels, equally proved, nothing is pushed, and its files are made again.

    Args:
        store: Where upstream's trees and the carried ones are.
        carrier: The series and the overlay.
        upstream: The ref.
        request: What to release, and where to.
        notify: Told what takes time.

    Raises:
        BadInput: The ref is no release, or the target no repository.
        CheckFailed: The carry has conflicts, a smoke is missing, or the branch holds a commit of a
            person's.
        Unavailable: Upstream's wheel cannot be had, or the target cannot be reached.
        EnvironmentLacks: The disk is full, or the tag cannot be signed.
        Busy: Another release came first.
    """
    if upstream.ref.version is None:
        raise BadInput(f"{upstream.ref.name} is no release", "release a tag such as v0.32.0")
    carried = carrier.carry(upstream)
    with (
        _directory(request) as out_dir,
        staging(out_dir) as aside,
        read_target(store, request.to, upstream.ref.name) as target,
    ):
        check_owned(target, upstream.commit)
        run = _Run(store, carrier, carried, request, target, aside, notify)
        proofs = run.prove()
        last = target.last
        if last is not None and last.carried == carried.commit and not request.again:
            earlier = latest((r for r in target.records if r.tag != last.tag), target.ref)
            made = run.make(last.number, earlier, proofs)
            if made.record.is_same(last):
                notify(f"{last.tag} in {target.remote.shown} is this already: nothing is pushed")
                state = State.DRY_RUN if request.dry_run else State.UNCHANGED
                return run.finish(made, state, out_dir)
        made = run.make(target.number, target.before, proofs)
        if request.dry_run:
            return run.finish(made, State.DRY_RUN, out_dir)
        if request.sign_sums:
            sign(made.files / SUMS, request.sign_sums)
        tag, commit = made.record.tag, carried.commit
        oid = write_tag(target, tag, commit, made.message, request.signing_key)
        notify(f"pushing {target.branch} and {tag} to {target.remote.shown}")
        push(store, target, tag, commit, oid)
        return run.finish(made, State.PUSHED, out_dir)


@dataclass(frozen=True)
class _Proved:
    """A device's proof, and its constraints file where there is a proof."""

    proof: Proof
    pins: bytes | None


@dataclass(frozen=True)
class _Made:
    """A release that waits: its files in a directory named after the tag, and the message."""

    record: Record
    files: Path
    message: bytes


@dataclass(frozen=True)
class _Run:
    """One release under way."""

    store: Store
    carrier: Carrier
    carried: Carried
    request: ReleaseRequest
    target: Target
    aside: Path
    notify: Notify

    def prove(self) -> tuple[_Proved, ...]:
        """Look up the proof of each device's wheel."""
        found = tuple(map(self._proof, self.request.devices))
        lacking = [proved.proof for proved in found if not proved.proof.proved]
        if lacking and not self.request.unverified:
            ref = self.target.ref
            rows = "; ".join(f"{proof.device}: {proof.detail}" for proof in lacking)
            raise CheckFailed(
                f"{ref} is not proved on every device that it would be released for ({rows})",
                f"run: python -m tools verify {ref}; or --unverified, and the tag will say so",
            )
        return found

    def make(self, number: int, before: Record | None, proofs: tuple[_Proved, ...]) -> _Made:
        """Build the wheels and write everything that lies beside them."""
        tag = f"{self.target.ref}+exaone.{number}"
        files = self.aside / tag
        builds = []
        for device in self.request.devices:
            self.notify(f"building {tag} for {device}")
            builds.append(self._build(device, files, number))
        beside = {
            f"constraints-{proved.proof.device}.txt": proved.pins
            for proved in proofs
            if proved.pins is not None
        }
        for device, done in zip(self.request.devices, builds, strict=True):
            for recipe in recipes_of(self.target.ref, device, done):
                beside[recipe.name] = recipe.text.encode()
        subjects = {patch.file: patch.subject for patch in self.carrier.series.patches}
        record = record_of(self.carried, tag, subjects, {}, tuple(p.proof for p in proofs))
        reasons = {outcome.name: outcome.rule for outcome in self.carried.outcomes}
        changelog = render_changelog(record, before, reasons)
        beside[CHANGELOG] = changelog.encode("utf-8", "surrogateescape")
        with disk_errors(self.aside):
            for name, content in beside.items():
                (files / name).write_bytes(content)
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in beside.items()}
        record = replace(record, files=read_sums(write_sums(files, digests)))
        return _Made(record, files, render_record(record, changelog, self._facts(number)))

    def finish(self, made: _Made, state: State, out_dir: Path) -> Released:
        """Give the files their name, unless this is a dry run, and say what was done."""
        path = None
        if state is not State.DRY_RUN:
            path = out_dir / made.files.name
            with disk_errors(out_dir):
                if path.exists():
                    path.rename(self.aside / "replaced")
                made.files.rename(path)
        listed = self.store.git.run(
            "log", "--reverse", "--first-parent", "--format=%H %s",
            self.carried.commit, f"^{self.carried.upstream.commit}", "--",
        ).stdout  # fmt: skip
        return Released(
            state,
            made.record,
            self.target.remote.shown,
            self.target.branch,
            tuple(listed.decode("utf-8", "replace").splitlines()),
            made.message.decode("utf-8", "replace"),
            path,
        )

    def _proof(self, device: str) -> _Proved:
        root, cache = self.store.settings.root, self.store.settings.cache
        ref = self.target.ref

        @functools.cache
        def wheel() -> Path:
            # A smoke runs what `build` makes without options; its number makes no difference.
            return self._build(device, self.aside / "proved", 1, proved=True).wheel

        proof = prove(root, ref, device, wheel)
        if not proof.proved:
            return _Proved(proof, None)
        return _Proved(proof, constraints(root, ref, device, wheel(), cache, self.notify))

    def _build(
        self, device: str, out_dir: Path, number: int, *, proved: bool = False
    ) -> BuildResult:
        amendments = self.request.amendments
        return build_wheel(
            self.store.git,
            self.carried,
            WheelRequest(
                device=device,
                out_dir=out_dir,
                build_number=number,
                wheel=self.request.wheel,
                amendments=replace(amendments, relax_local=False) if proved else amendments,
                delta=not proved,
                check=not proved,
            ),
            self.store.settings.cache,
            self.notify,
        )

    def _facts(self, number: int) -> dict[str, str]:
        upstream = self.carried.upstream
        facts = {"Source": f"{upstream.source} {upstream.kind}", "Tool-Version": tool_version()}
        revision = _revision(self.store.settings.root)
        facts |= {"Project-Commit": revision} if revision else {}
        relaxed = " --relax-local" if self.request.amendments.relax_local else ""
        for device in self.request.devices:
            facts[f"Rebuild-{device}"] = (
                f"python -m tools build {self.target.ref} --device {device} --delta{relaxed} "
                f"--build-number {number}"
            )
        return facts


@contextlib.contextmanager
def _directory(request: ReleaseRequest) -> Iterator[Path]:
    """Lock the place of the files; a dry run gets one of its own, gone afterwards."""
    if not request.dry_run:
        with output_directory(request.out_dir) as out_dir:
            yield out_dir
        return
    with tempfile.TemporaryDirectory(prefix="vllm-exaone-") as scratch:
        yield Path(scratch)


def _revision(root: Path) -> str:
    """Return the project's own commit, marked where files differ from it; "" without a checkout."""
    try:
        own = Repository.at(root)
        commit = own.head()
    except BadInput:
        return ""
    status = own.here.run(
        "-C", str(root), "status", "--porcelain", environment={"GIT_WORK_TREE": str(root)}
    )
    return f"{commit}-modified" if status.stdout else commit
