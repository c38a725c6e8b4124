"""The project's own line: how a watch carries, checks, builds and runs one ref."""

import datetime
from collections.abc import Callable
from pathlib import Path

from tools.carry import Carried, Carrier
from tools.contract import ContractReport
from tools.git import GitTree
from tools.maintain.contracts import carried_contract
from tools.maintain.ship import WheelRequest, build_wheel, built_wheel
from tools.maintain.stages import Line
from tools.settings import Settings
from tools.smoke import verified
from tools.smoke.results import SmokeReport
from tools.smoke.smoke import smoke
from tools.smoke.verified import content_of
from tools.smoke.verify import Asked
from tools.upstream import RefKind, Store, Upstream, obtain
from tools.upstream.history import Offered
from tools.wheel.build import resolve_device

Notify = Callable[[str], None]


def project_line(
    carrier: Carrier,
    settings: Settings,
    device: str,
    notify: Notify,
    smokes: Path | None = None,
) -> Line:
    """Return how the project's series and overlay are taken through the stages.

    Args:
        carrier: Carries them.
        settings: Where wheels go and what is kept.
        device: ``auto``, ``cpu`` or ``cuda``.
        notify: Told what takes time.
        smokes: A record of smokes to write each into, so that a proposal can show it.
    """

    def contract(carried: Carried) -> ContractReport:
        tree = GitTree(carrier.git, carried.commit)
        report = carried_contract(settings.cache, carried, tree)
        if report is None:
            raise ValueError(f"the series does not carry to {carried.upstream.ref.name}")
        return report

    def build(carried: Carried) -> Path:
        ref = carried.upstream.ref.name
        directory = settings.root / "build" / ref / "dist"
        request = WheelRequest.of(settings, ref, device, directory)
        held = built_wheel(carried, request)
        if held is not None:
            return held
        return build_wheel(carrier.git, carried, request, settings.cache, notify).wheel

    def run(carried: Carried, wheel: Path) -> SmokeReport:
        report = smoke(
            carried.upstream.ref.name,
            wheel=wheel,
            device=resolve_device(device),
            root=settings.root,
            cache=settings.cache,
            progress=notify,
        )
        if smokes is not None:
            name = Asked(report.device).name(report.release)
            now = datetime.datetime.now(datetime.UTC)
            held = verified.load(smokes)
            record = held.record(name, report, content_of(wheel), carried.commit, now)
            verified.save(record, smokes)
        return report

    return Line(carrier.carry, contract, build, run)


def obtain_offered(store: Store, offered: Offered, notify: Notify) -> Upstream:
    """Bring an offered ref into the store: of a branch or a tag the very commit offered."""
    if offered.ref.kind is RefKind.BRANCH:
        return obtain(store, offered.commit, offered.source, notify)
    return obtain(store, offered.ref.name, offered.source, notify, commit=offered.commit)
