"""The matrix over a small upstream: cells, expected conflicts, summaries, and how it is shown."""

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.unit.carry.conftest import Workshop, workshop  # noqa: F401  (the fixture)
from tools.carry import Carried, Carrier
from tools.contract import Code, ContractReport, Finding
from tools.errors import BadInput
from tools.maintain import Matrix, run_matrix
from tools.maintain.matrix import read_expected
from tools.report.matrix import matrix_data, matrix_page, matrix_table
from tools.tree import Tree
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


BROKEN = Finding(Code.UNKNOWN_KEYWORD, "keep.py", 3, "run takes no `lengths`")
NOTED = Finding(Code.BASE_BODY, "keep.py", 4, "the body of Base.run changed")
IDLE = Finding(Code.UNUSED_IGNORE, "keep.py", 5, "nothing here needs ignore[CT201]")


def _contract(carried: Carried, tree: Tree) -> ContractReport | None:
    """Find a break in each but the last release, and check none that is in conflict."""
    if carried.conflicts:
        return None
    assert tree.read("keep.py") == b"" or tree.read("new.py") == b""
    broken = () if tree.read("new.py") is not None else (BROKEN,)
    return ContractReport((*broken, NOTED), ("keep.py",), idle_ignores=(IDLE,))


def test_contract_findings_are_in_every_form(
    workshop: Workshop,  # noqa: F811
    tmp_path: Path,
) -> None:
    files = {"m.py": TABLE, "keep.py": b""}
    upstreams = [workshop.release(name, files) for name in ("v1.0.0", "v1.1.0", "v1.2.0")]
    upstreams.append(workshop.release("v1.3.0", {"keep.py": b""}))
    upstreams.append(workshop.release("v1.4.0", {**files, "new.py": b""}))
    carrier = workshop.carrier(workshop.patch("0001-add", "v1.0.0", _add_c))
    matrix = run_matrix(
        lambda: carrier, upstreams, tmp_path / "no", jobs=1, contract=_contract, whole=True
    )

    (error,) = matrix.contract_errors
    assert (error.finding, error.refs) == (BROKEN, ("v1.0.0", "v1.1.0", "v1.2.0"))
    assert matrix.unused == (IDLE,)
    console = Console(width=120, record=True, file=(tmp_path / "out").open("w"))
    console.print(matrix_table(matrix))
    console.file.close()
    rows = [line.split() for line in console.export_text().splitlines()]
    shown = {row[0]: row[2:] for row in rows if row and row[0].startswith("v1.") and len(row) < 5}
    assert shown == {
        "v1.0.0": ["1e", "1n"],
        "v1.1.0": ["1e", "1n"],
        "v1.2.0": ["1e", "1n"],
        "v1.3.0": ["-"],
        "v1.4.0": ["1n"],
    }
    page, data = matrix_page(matrix), matrix_data(matrix)
    assert "v1.0.0 to v1.2.0 (3 refs)" in page
    assert page.count("run takes no `lengths`") == 1
    assert "ignore[CT201]" in page
    assert data["contract_errors"] == 1
    assert data["contracts"]["v1.3.0"] is None
    assert [f["code"] for f in data["contracts"]["v1.4.0"]["findings"]] == ["CT302"]
    assert [f["code"] for f in data["unused_ignores"]] == ["CT901"]


def test_an_ignore_comment_that_one_release_needs_is_not_unused(
    carrying: tuple[Carrier, list[Upstream]], tmp_path: Path
) -> None:
    def contract(carried: Carried, _tree: Tree) -> ContractReport:
        idle = () if carried.upstream.ref.name == "v1.2.0" else (IDLE,)
        return ContractReport((), ("keep.py",), idle_ignores=idle)

    carrier, upstreams = carrying
    matrix = run_matrix(
        lambda: carrier, upstreams, tmp_path / "no", jobs=1, contract=contract, whole=True
    )
    assert matrix.unused == ()


def test_twenty_eight_patches_and_the_contract_fit_eighty_columns(
    carrying: tuple[Carrier, list[Upstream]], tmp_path: Path
) -> None:
    carrier, upstreams = carrying
    done = run_matrix(lambda: carrier, upstreams, tmp_path / "no", jobs=1, contract=_contract_none)
    (cells,) = done.cells.values()
    names = tuple(f"{number:04}-x" for number in range(1, 29))
    wide = replace(done, patches=names, cells=dict.fromkeys(names, cells))
    console = Console(width=80, record=True, file=(tmp_path / "out").open("w"))
    console.print(matrix_table(wide))
    console.file.close()
    heading = console.export_text().splitlines()[3]
    assert heading.split() == ["ref", *(str(n % 10) for n in range(1, 29)), "contract"]


def _contract_none(_carried: Carried, _tree: Tree) -> ContractReport:
    return ContractReport((), ("keep.py",))
