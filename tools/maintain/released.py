"""The record of one release: what an annotated tag says, and what changed since the one before.

The tag's message is the only record, so that a repository tells by itself what was released into
it. Its last paragraph has one ``Field: value`` a line; above it stands the changelog for people.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version

from tools.carry import Carried, Outcome, PatchOutcome

TAG = re.compile(
    r"(?P<ref>v[0-9]+(?:\.[0-9]+)*(?:(?:a|b|rc|\.post|\.dev)[0-9]+)*)"
    r"\+exaone\.(?P<number>[1-9][0-9]*)"
)
CARRIED = (Outcome.CLEAN, Outcome.STRUCTURAL)
_OID = r"[0-9a-f]{40}"
_SHA256 = r"[0-9a-f]{64}"
_FIELDS = {
    "Upstream-Commit": re.compile(_OID),
    "Carried-Commit": re.compile(_OID),
    "Patch": re.compile(rf"({_SHA256}) ([a-z-]+) (\S+) (\S+) (.*)"),
    "Overlay": re.compile(rf"({_SHA256}) (.+)"),
    "File": re.compile(rf"({_SHA256})  ([^/]+)"),
    "Smoke": re.compile(r"(\w+) (passed|unproved): (.*)"),
}
_SIGNATURE = re.compile(r"^-----BEGIN [A-Z ]+-----$", re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """One patch in a release: its step, the variant that was carried, its SHA-256 and outcome."""

    name: str
    file: str
    sha256: str
    outcome: str
    subject: str

    @property
    def is_carried(self) -> bool:
        """Whether the release holds a commit of it."""
        return self.outcome in CARRIED


@dataclass(frozen=True)
class Proof:
    """What the engine said of the wheel for one device.

    Attributes:
        device: ``cpu`` or ``cuda``.
        proved: Whether a smoke of this very wheel passed.
        detail: When and with what, or why it counts as unproved.
    """

    device: str
    proved: bool
    detail: str


@dataclass(frozen=True)
class Record:
    """One release.

    Attributes:
        tag: Such as ``v0.32.0+exaone.2``.
        upstream: Upstream's commit in the store.
        carried: The commit that the tag and the branch name.
        steps: Every patch of the series, in order.
        overlay: SHA-256 by path of the overlay files that were laid.
        files: SHA-256 by name of what lies beside it.
        proofs: One a device.
    """

    tag: str
    upstream: str
    carried: str
    steps: tuple[Step, ...]
    overlay: Mapping[str, str]
    files: Mapping[str, str]
    proofs: tuple[Proof, ...]

    @property
    def number(self) -> int:
        """The N of ``+exaone.N``."""
        return int(self.tag.rpartition(".")[2])

    def is_same(self, other: "Record") -> bool:
        """Tell whether two records, of one number, release the same wheels equally proved."""
        sides = [
            (
                record.carried,
                {name: sha for name, sha in record.files.items() if name.endswith(".whl")},
                [(proof.device, proof.proved) for proof in record.proofs],
            )
            for record in (self, other)
        ]
        return sides[0] == sides[1]


def record_of(
    carried: Carried,
    tag: str,
    subjects: Mapping[str, str],
    files: Mapping[str, str],
    proofs: tuple[Proof, ...],
) -> Record:
    """Return the record of a release that is about to be made.

    Args:
        carried: What is released.
        tag: Its tag.
        subjects: The subject of each patch file.
        files: SHA-256 by name of what lies beside it.
        proofs: One a device.
    """

    def step(done: PatchOutcome) -> Step:
        return Step(done.name, done.file, done.digest, done.outcome.value, subjects[done.file])

    return Record(
        tag,
        carried.upstream.commit,
        carried.commit,
        tuple(step(done) for done in carried.outcomes),
        {laid.file.target: laid.file.digest for laid in carried.overlay if laid.laid},
        dict(files),
        proofs,
    )


def parse_record(tag: str, message: bytes) -> Record | None:
    """Read a tag's message, or return None where it is none of ours.

    Args:
        tag: The tag's name.
        message: Anything that a repository may hold there.
    """
    text = _SIGNATURE.split(message.decode("utf-8", "replace"))[0]
    found: dict[str, list[re.Match[str]]] = {name: [] for name in _FIELDS}
    for line in text.rstrip("\n").rpartition("\n\n")[2].splitlines():
        name, _, value = line.partition(": ")
        match = _FIELDS[name].fullmatch(value) if name in _FIELDS else None
        if match:
            found[name].append(match)
    if not TAG.fullmatch(tag) or not all(
        len(found[name]) == 1 for name in ("Upstream-Commit", "Carried-Commit")
    ):
        return None
    return Record(
        tag=tag,
        upstream=found["Upstream-Commit"][0][0],
        carried=found["Carried-Commit"][0][0],
        steps=tuple(Step(m[3], m[4], m[1], m[2], m[5]) for m in found["Patch"]),
        overlay={m[2]: m[1] for m in found["Overlay"]},
        files={m[2]: m[1] for m in found["File"]},
        proofs=tuple(Proof(m[1], m[2] == "passed", m[3]) for m in found["Smoke"]),
    )


def is_signed(message: bytes) -> bool:
    """Tell whether git put a signature at the end of a tag's message."""
    return bool(_SIGNATURE.search(message.decode("utf-8", "replace")))


def render_record(record: Record, changelog: str, facts: Mapping[str, str]) -> bytes:
    """Return the tag's message.

    Args:
        record: The release.
        changelog: From :func:`render_changelog`.
        facts: Further fields, by name.
    """
    lines = [
        f"Upstream-Commit: {record.upstream}",
        f"Carried-Commit: {record.carried}",
        *(f"{name}: {value}" for name, value in facts.items()),
        *(f"Patch: {s.sha256} {s.outcome} {s.name} {s.file} {s.subject}" for s in record.steps),
        *(f"Overlay: {sha256} {path}" for path, sha256 in record.overlay.items()),
        *(
            f"Smoke: {proof.device} {'passed' if proof.proved else 'unproved'}: {proof.detail}"
            for proof in record.proofs
        ),
        *(f"File: {sha256}  {name}" for name, sha256 in sorted(record.files.items())),
    ]
    return f"{changelog}\n{chr(10).join(lines)}\n".encode("utf-8", "surrogateescape")


def render_changelog(record: Record, before: Record | None, reasons: Mapping[str, str]) -> str:
    """Return what a release holds and what changed, as Markdown for the tag and for a file.

    Args:
        record: The release.
        before: The release before it in the same repository, or None.
        reasons: Why a step is not carried, by its name.
    """
    match = TAG.fullmatch(record.tag)
    if match is None:
        raise ValueError(f"not a release tag: {record.tag}")
    unproved = "".join(f", unproved on {p.device}" for p in record.proofs if not p.proved)
    title = f"vLLM {match['ref']} with EXAONE-4.5, build {match['number']}{unproved}"
    sections = {
        "New": [f"{step.name}: {step.subject}" for step in _new(record, before)],
        "Dropped": [*_dropped(record, before, reasons)],
        "Refreshed": [*_refreshed(record, before)],
        "Overlay": [*_overlay(record, before)],
    }
    text = [title, ""]
    text += [f"Changes since {before.tag}." if before else "The first release in this repository."]
    for name, rows in sections.items():
        text += ["", f"{name}:", *(f"- {row}" for row in rows)] if rows else []
    if not any(sections.values()):
        text += ["", "No patch and no file of the overlay changed."]
    text += ["", "Smoke:"]
    text += [
        f"- {proof.device}: {'passed' if proof.proved else 'UNPROVED'}, {proof.detail}"
        for proof in record.proofs
    ]
    return "\n".join(text) + "\n"


def latest(records: Iterable[Record], ref: str) -> Record | None:
    """Return the release that one of ``ref`` follows: its own last, else the nearest earlier's.

    Args:
        records: The releases of the repository.
        ref: A release of upstream's, such as ``v0.32.0``.
    """
    found: list[tuple[Version, int, Record]] = []
    for record in records:
        match = TAG.fullmatch(record.tag)
        if match and Version(match["ref"]) <= Version(ref):
            found.append((Version(match["ref"]), record.number, record))
    return max(found, key=lambda row: row[:2])[2] if found else None


def next_number(tags: Iterable[str], ref: str) -> int:
    """Return the first N above all that a repository has tags of, whoever made them."""
    matches = [match for tag in tags if (match := TAG.fullmatch(tag)) and match["ref"] == ref]
    return max((int(match["number"]) for match in matches), default=0) + 1


def _carried(record: Record | None) -> dict[str, Step]:
    return {step.name: step for step in (record.steps if record else ()) if step.is_carried}


def _new(record: Record, before: Record | None) -> Sequence[Step]:
    held = _carried(before)
    return [step for step in record.steps if step.is_carried and step.name not in held]


def _dropped(record: Record, before: Record | None, reasons: Mapping[str, str]) -> Iterable[str]:
    here = {step.name: step for step in record.steps}
    for name, step in _carried(before).items():
        now = here.get(name)
        if now is None:
            yield f"{name}: {step.subject} (no longer in the series)"
        elif not now.is_carried:
            why = "upstream has it" if now.outcome == Outcome.UPSTREAMED else reasons.get(name, "")
            yield f"{name}: {step.subject} ({why or now.outcome})"


def _refreshed(record: Record, before: Record | None) -> Iterable[str]:
    held = _carried(before)
    for name, step in _carried(record).items():
        old = held.get(name)
        if old is not None and (old.file, old.sha256) != (step.file, step.sha256):
            other = f" (now {step.file})" if old.file != step.file else ""
            yield f"{name}: {step.subject}{other}"


def _overlay(record: Record, before: Record | None) -> Iterable[str]:
    held = before.overlay if before else {}
    for path in sorted(record.overlay.keys() | held.keys()):
        old, new = held.get(path), record.overlay.get(path)
        if old != new:
            yield f"{path} ({'new' if old is None else 'dropped' if new is None else 'changed'})"
