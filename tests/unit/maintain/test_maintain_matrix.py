"""The matrix over a small upstream: cells, expected conflicts, summaries, and how it is shown."""

from pathlib import Path

import pytest
from rich.console import Console

from tests.unit.carry.conftest import Workshop, workshop  # noqa: F401  (the fixture)
from tools.carry import Carrier
from tools.errors import BadInput
from tools.maintain import Matrix, run_matrix
from tools.maintain.matrix import read_expected
from tools.report.matrix import matrix_data, matrix_page, matrix_table
from tools.upstream import Upstream

TABLE = b'TABLE = {\n    "a": 1,\n    "b": 2,\n    "d": 4,\n}\n'
RELEASES = {
    "v1.0.0": {"m.py": TABLE, "keep.py": b""},
    "v1.1.0": {"m.py": TABLE.replace(b'"a": 1', b'"a": 10').replace(b'"d": 4', b'"e": 5')},
    "v1.2.0": {"m.py": TABLE.replace(b'    "d"', b'    "c": 3,\n    "d"')},
    "v1.3.0": {"keep.py": b""},
    "v1.4.0": {"m.py": TABLE, "new.py": b""},
}


def _add_c(work: Path) -> None:
    file = work / "m.py"
    file.write_bytes(file.read_bytes().replace(b'    "d"', b'    "c": 3,\n    "d"'))


@pytest.fixture
def carrying(workshop: Workshop) -> tuple[Carrier, list[Upstream]]:  # noqa: F811
    """A carrier of one patch, and every release."""
    upstreams = [workshop.release(name, files) for name, files in RELEASES.items()]
    patch = workshop.patch("0001-add", "v1.0.0", _add_c, fields="Skip-If: exists new.py\n")
    return workshop.carrier(patch), upstreams


def _run(carrying: tuple[Carrier, list[Upstream]], tmp_path: Path, expected: str = "") -> Matrix:
    file = tmp_path / "expected.toml"
    file.write_text(expected)
    carrier, upstreams = carrying
    return run_matrix(lambda: carrier, upstreams, file, jobs=1)


EXPECTED = '[[conflict]]\npatch = "0001-add"\nrefs = ["v1.3.0"]\nreason = "the file is gone"\n'


def test_every_outcome_is_in_its_cell_and_in_the_summary(
    carrying: tuple[Carrier, list[Upstream]], tmp_path: Path
) -> None:
    matrix = _run(carrying, tmp_path, EXPECTED)
    assert [cell.outcome.outcome.value for cell in matrix.cells["0001-add"]] == [
        "clean", "structural", "upstreamed", "conflict", "not-needed",
    ]  # fmt: skip
    (summary,) = matrix.summaries()
    assert (summary.first, summary.last) == ("v1.0.0", "v1.1.0")
    counts = (summary.text, summary.syntax, summary.upstreamed)
    assert (*counts, summary.not_needed, summary.conflicts) == (1, 1, 1, 1, 1)
    assert matrix.failures == ()


def test_an_unrecorded_conflict_fails(
    carrying: tuple[Carrier, list[Upstream]], tmp_path: Path
) -> None:
    (failed,) = _run(carrying, tmp_path).failures
    assert failed.ref == "v1.3.0"


def test_a_recorded_conflict_that_is_none_fails(
    carrying: tuple[Carrier, list[Upstream]], tmp_path: Path
) -> None:
    stale = EXPECTED.replace('["v1.3.0"]', '["v1.3.0", "v1.0.0"]')
    (failed,) = _run(carrying, tmp_path, stale).failures
    assert failed.ref == "v1.0.0"


@pytest.mark.parametrize(
    "text", ["[[conflict]\n", '[[conflict]]\npatch = "x"\nrefs = ["v1"]\n', "[[conflict]]\n"]
)
def test_a_malformed_record_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "expected.toml").write_text(text)
    with pytest.raises(BadInput, match=r"expected\.toml"):
        read_expected(tmp_path / "expected.toml")


def test_nothing_of_a_matrix_stays_in_the_store(
    carrying: tuple[Carrier, list[Upstream]], tmp_path: Path
) -> None:
    """A hundred runs leave the store as one does: what patches were written on, and no carry."""
    carrier, _ = carrying
    _run(carrying, tmp_path)

    def held() -> list[str]:
        return sorted(p.name for p in carrier.git.directory.rglob("*") if p.is_file())

    first = held()
    for _ in range(3):
        _run(carrying, tmp_path)
    assert held() == first
    assert not carrier.git.refs("refs/carried/")


def test_all_forms_show_the_same(carrying: tuple[Carrier, list[Upstream]], tmp_path: Path) -> None:
    matrix = _run(carrying, tmp_path)
    console = Console(width=120, record=True, file=(tmp_path / "out").open("w"))
    console.print(matrix_table(matrix))
    console.file.close()
    text, page, data = console.export_text(), matrix_page(matrix), matrix_data(matrix)
    for glyph in "●◆↑✗·":
        assert glyph in text
        assert glyph in page
    assert "upstream deleted" in text
    assert "upstream deleted" in page
    assert data["failures"] == ["v1.3.0 0001-add"]
    assert [row["outcome"] for row in data["patches"]["0001-add"]][:2] == ["clean", "structural"]
    assert "http" not in page.replace("http-equiv", "")  # nothing beside it is needed
