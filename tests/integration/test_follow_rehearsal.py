"""A series that knows v0.17.0 only follows upstream to the newest release; see REHEARSAL.md.

``EVERY_RELEASE=1`` meets every release on the way (ten minutes), else the ones at which something
begins or ends. ``REHEARSAL_ENGINE=1`` also builds and runs what the watch would (an hour).
``REHEARSAL_TABLE=FILE`` writes the table of REHEARSAL.md.
"""

import os
from pathlib import Path

import pytest

from tests.rehearsal import Rehearsal, announced_by, table
from tools.cli.common import Project
from tools.maintain import releases_since
from tools.maintain.watched import Stage

pytestmark = [pytest.mark.network, pytest.mark.timeout(5_400)]

START = "v0.17.0"
WINDOWS = (
    *("v0.17.0", "v0.18.0", "v0.20.0", "v0.22.0", "v0.23.0", "v0.24.0"),
    *("v0.25.0", "v0.28.0", "v0.29.0", "v0.30.0", "v0.31.0", "v0.33.0"),
)
ENGINE = bool(os.environ.get("REHEARSAL_ENGINE"))
# What a person writes: where it begins, and what announces it there: codes of the contract, or the
# smoke where an engine runs. For those without see REHEARSAL.md.
WRITTEN = {
    "0004-register-processor": ("v0.18.0",),
    "0037-cpu-preload-warning": ("v0.18.0", "smoke"),
    "0020-image-processor-import": ("v0.20.0", "CT103"),
    "0021-mtp-text-config": ("v0.20.0", "CT231"),
    "0023-mtp-lora": ("v0.20.0", "CT212"),
    "0028-cpu-rejection-arguments": ("v0.20.0", "smoke"),
    "0031-inherited-attributes": ("v0.20.0", "CT211"),
    "0032-refuse-video-pruning": ("v0.20.0",),
    "0033-older-transformers": ("v0.20.0", "CT103"),
    "0034-mtp-layer-count": ("v0.20.0",),
    "0038-text-without-media": ("v0.20.0",),
    "0022-vision-sequence-lengths": ("v0.22.0", "CT201"),
    "0029-cpu-sampler-precision": ("v0.23.0", "smoke"),
    "0036-video-without-ffmpeg": ("v0.25.0", "smoke"),
    "0024-input-norm-of-model": ("v0.28.0", "CT211", "CT221"),
    "0035-mtp-prefix-retention": ("v0.29.0", "smoke"),
    "0025-input-norm-fused": ("v0.30.0", "CT208", "CT221"),
    "0030-cpu-kernel-dispatchers": ("v0.30.0", "smoke"),
    "0026-input-norm-built": ("v0.31.0", "CT208", "CT221"),
}


def _releases() -> tuple[str, ...]:
    if not os.environ.get("EVERY_RELEASE"):
        return WINDOWS
    return tuple(releases_since(Project().store, START))


def test_nobody_has_to_do_anything_but_write_backports(real_releases: Path, tmp_path: Path) -> None:
    rehearsal = Rehearsal(Project(), START, tmp_path, Stage.SMOKE if ENGINE else Stage.CONTRACT)
    hooks = [step.name for step in rehearsal.series.steps]
    assert len(hooks) == 9
    visits = []
    for visit in rehearsal.walk(_releases()):
        visits.append(visit)
        if os.environ.get("REHEARSAL_TABLE"):
            Path(os.environ["REHEARSAL_TABLE"]).write_text(table(visits), "utf-8")
    for visit in visits:
        blocking = [need.text for need in visit.last.needs if need.blocking]
        assert blocking == [], visit.ref
    written = {
        hand.patch: (visit.ref, *announced_by(hand)) for visit in visits for hand in visit.written
    }
    seen = {
        patch: (ref, *(name for name in names if ENGINE or name != "smoke"))
        for patch, (ref, *names) in WRITTEN.items()
    }
    assert written == seen
