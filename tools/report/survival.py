"""How long patches live: a table, data, and a page with the trend."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from jinja2 import Environment, PackageLoader
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tools.carry import Outcome
from tools.maintain.survival import End, Life, Moment, Survival

_STEP = 26  # pixels from one release to the next
_BAR = 20
_ROW = 18
_UNIT = 6  # pixels a patch in the stacked bars
_GAP = 8
_LABELS = 70
_NAMES = 270
_CARRIED = (Outcome.CLEAN, Outcome.STRUCTURAL)
# From the axis upwards: what is carried, what is in conflict, and what upstream has.
_STACK = (*_CARRIED, Outcome.CONFLICT, Outcome.UPSTREAMED, Outcome.NOT_NEEDED)


def survival_text(found: Survival) -> Group:
    """Return the lives, and below them what is untrue and what may go."""
    table = Table(title="how long each patch lives", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("patch", overflow="fold")
    table.add_column("base", no_wrap=True)
    for name in ("on text", "in all"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("ended", overflow="fold")
    for life in found.lives:
        spans = (f"{span.releases}, {span.days} d" for span in (life.text, life.whole))
        table.add_row(life.file.removesuffix(".patch"), life.born.ref, *spans, _ended(life))
    lines = [
        *(Text(f"{one.file}: {one.field} {one.text}", style="red") for one in found.untrue),
        *(Text(f"{one.patch} may go: {one.why}", style="yellow") for one in found.droppable),
    ]
    return Group(table, *lines)


def survival_data(found: Survival) -> dict[str, Any]:
    """Return lives, untrue fields and what may go, for machines."""
    return {
        "oldest": found.oldest,
        "releases": [
            {"ref": moment.ref, "date": _date(moment), **{o.value: n for o, n in counts.items()}}
            for moment, counts in zip(found.moments, found.counts, strict=True)
        ],
        "lives": [
            {
                "patch": life.patch,
                "file": life.file,
                "base": life.born.ref,
                "born": _date(life.born),
                "text": asdict(life.text),
                "whole": asdict(life.whole),
                "end": life.end.value,
                "ended": life.ended or None,
                "outcomes": {moment.ref: outcome.value for moment, outcome in life.outcomes},
            }
            for life in found.lives
        ],
        "untrue": [asdict(one) for one in found.untrue],
        "droppable": [asdict(one) for one in found.droppable],
    }


@dataclass(frozen=True)
class Box:
    """A rectangle of a chart; ``kind`` is its colour's class, ``title`` what it says."""

    x: int
    y: int
    width: int
    height: int
    kind: str
    title: str


@dataclass(frozen=True)
class Label:
    """A text of a chart; one of a release stands upright."""

    x: int
    y: int
    text: str


@dataclass(frozen=True)
class Chart:
    """An SVG's size, rectangles and texts."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    releases: tuple[Label, ...]
    names: tuple[Label, ...]


def survival_page(found: Survival) -> str:
    """Return the trend as one HTML page that needs nothing beside it."""
    environment = Environment(
        loader=PackageLoader("tools.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("survival.html").render(
        found=found,
        trend=trend_chart(found),
        lives=lives_chart(found),
        outcomes=[outcome.value for outcome in _STACK],
        first=_date(found.moments[0]),
        last=_date(found.moments[-1]),
        ended={life.file: _ended(life) for life in found.lives},
    )


def trend_chart(found: Survival) -> Chart:
    """Return a bar a release: how many patches were carried, on text and on syntax, or not."""
    tallest = max(sum(counts.values()) for counts in found.counts)
    boxes = []
    for column, (moment, counts) in enumerate(zip(found.moments, found.counts, strict=True)):
        top = tallest * _UNIT
        for outcome in _STACK:
            count = counts[outcome]
            top -= count * _UNIT
            if count:
                title = f"{moment.ref}, {_date(moment)}: {count} {outcome}"
                box = Box(_at(column), top, _BAR, count * _UNIT, outcome.value, title)
                boxes.append(box)
    return _chart(found, tuple(boxes), tallest * _UNIT, ())


def lives_chart(found: Survival) -> Chart:
    """Return a row a file: where text was enough, where syntax was needed, and the end."""
    places = {moment.ref: column for column, moment in enumerate(found.moments)}
    boxes = []
    names = []
    for row, life in enumerate(found.lives):
        y = row * _ROW
        names.append(Label(_NAMES - _GAP, y + _ROW - 5, life.file.removesuffix(".patch")))
        for moment, outcome in life.outcomes[: life.whole.releases + (life.end is not End.ALIVE)]:
            title = f"{life.file} at {moment.ref}, {_date(moment)}: {outcome}"
            x = _at(places[moment.ref])
            boxes.append(Box(x, y + 3, _BAR, _ROW - 6, outcome.value, title))
    return _chart(found, tuple(boxes), len(found.lives) * _ROW, tuple(names))


def _chart(found: Survival, boxes: tuple[Box, ...], height: int, names: tuple[Label, ...]) -> Chart:
    labels = tuple(
        Label(_at(column) + _BAR // 2, height + _GAP, moment.ref)
        for column, moment in enumerate(found.moments)
    )
    return Chart(_at(len(found.moments)), height + _LABELS, boxes, labels, names)


def _at(column: int) -> int:
    return _NAMES + column * _STEP


def _date(moment: Moment) -> str:
    return datetime.fromtimestamp(moment.when, UTC).date().isoformat()


def _ended(life: Life) -> str:
    return f"{life.end} at {life.ended}" if life.ended else life.end.value
