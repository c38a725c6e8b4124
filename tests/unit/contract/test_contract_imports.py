"""Imports: what resolves, what does not, and what is let through on purpose."""

from collections.abc import Callable

import pytest

from tools.contract import ContractReport, Severity
from tools.contract.check import check
from tools.errors import BadInput
from tools.tree import MappingTree

Check = Callable[..., ContractReport]
GETTER = "\ndef __getattr__(name):\n    return TABLE[name]\n"


def found(report: ContractReport) -> list[tuple[str, int]]:
    return [(finding.code.code, finding.line) for finding in report.findings]


def test_a_missing_module_and_a_missing_name_are_reported_at_their_lines(check_client: Check):
    report = check_client(
        "import vllm.gone\nfrom vllm.layers import (\n    Norm,\n    Missing,\n)\n"
    )
    assert found(report) == [("CT101", 1), ("CT102", 4)]


def test_the_hint_says_where_a_moved_name_is_defined_now(check_client: Check):
    report = check_client(
        "from vllm.layers import Moved\n", {"vllm/other.py": "class Moved:\n    pass\n"}
    )
    assert report.findings[0].hint == "Moved is defined in vllm.other"


@pytest.mark.parametrize(
    "package",
    [
        "from vllm.models.tower import Block as Thing\n",
        "from vllm.models.tower import *\nThing = Block\n",
        "try:\n    from vllm.layers import Norm as Thing\nexcept ImportError:\n    Thing = 0\n",
        "import typing\nif typing.TYPE_CHECKING:\n    from vllm.layers import Norm as Thing\n",
        "TABLE = {'Thing': 'vllm.models.tower:Block'}" + GETTER,
        "TABLE = {'Thing': '.models.tower:Block'}" + GETTER,
        "def __getattr__(name):\n    return name\n",
        "from elsewhere import *\n",
        "with open('x') as Thing:\n    pass\n",
        "for Thing in ():\n    pass\n",
        "(Thing, other) = 1, 2\n",
    ],
)
def test_names_that_a_package_offers_by_any_means_resolve(check_client: Check, package: str):
    report = check_client("from vllm import Thing\n", {"vllm/__init__.py": package})
    assert report.findings == ()


@pytest.mark.parametrize(
    "package",
    [
        "TABLE = {'Other': 'vllm.layers:Norm'}" + GETTER,
        "TABLE = {'Thing': 'vllm.gone:Norm'}" + GETTER,
        "TABLE = {'Thing': 'vllm.layers:Gone'}" + GETTER,
        "__all__ = ['Other']\n",
    ],
)
def test_a_lazy_table_without_the_name_or_leading_nowhere_is_reported(
    check_client: Check, package: str
):
    report = check_client("from vllm import Thing\n", {"vllm/__init__.py": package})
    assert [f.code.code for f in report.findings] == ["CT102"]


def test_a_star_import_hides_what_all_leaves_out_and_private_names(check_client: Check):
    report = check_client(
        "from vllm.a import Listed, Unlisted\nfrom vllm.b import _private\n",
        {
            "vllm/a.py": "from vllm.c import *\n",
            "vllm/b.py": "from vllm.d import *\n",
            "vllm/c.py": "__all__ = ['Listed']\nListed = Unlisted = 1\n",
            "vllm/d.py": "_private = 1\n",
        },
    )
    assert [f.message for f in report.findings] == [
        "vllm.a has no Unlisted",
        "vllm.b has no _private",
    ]


@pytest.mark.parametrize(
    ("source", "severity"),
    [
        ("try:\n    import vllm.gone\nexcept ImportError:\n    pass\n", None),
        ("try:\n    import vllm.gone\nexcept ValueError:\n    pass\n", Severity.ERROR),
        ("if True:\n    import vllm.gone\n", Severity.WARNING),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import vllm.gone\n",
            Severity.NOTE,
        ),
        ("def f():\n    import vllm.gone\n", Severity.ERROR),
        ("import torch.gone\nfrom transformers import Anything\n", None),
    ],
)
def test_the_guard_of_an_import_decides_how_much_it_matters(
    check_client: Check, source: str, severity: Severity | None
):
    severities = [finding.severity for finding in check_client(source).findings]
    assert severities == ([severity] if severity else [])


def test_relative_imports_resolve_from_modules_and_packages(check_client: Check):
    report = check_client(
        "from .tower import Block\nfrom ..layers import Norm\nfrom . import sub\n"
        "from .tower import Gone\n",
        {"vllm/models/sub/__init__.py": "from ..tower import Tower\n"},
    )
    assert [f.message for f in report.findings] == ["vllm.models.tower has no Gone"]


def test_modules_that_the_build_puts_in_place_count_as_present(make_tree: Callable[..., object]):
    files = {
        "vllm/__init__.py": b"",
        "setup.py": b"dst = 'vllm/third_party/fast'\next = CMakeExtension('vllm/_C')\n",
        "vllm/a.py": b"import vllm._C\nfrom vllm.third_party.fast.x import y\nimport vllm._D\n",
    }
    report = check(MappingTree(files), modules=["vllm/a.py"])
    assert [f.message for f in report.findings] == ["module vllm._D does not exist"]


def test_attributes_of_imported_modules_are_checked_unless_rebound_or_tested(check_client: Check):
    report = check_client(
        "from vllm import layers\nimport vllm.layers as named\n"
        "layers.helper\nlayers.gone\nnamed.gone_too\n"
        "getattr(layers, 'perhaps', None)\n"
        "try:\n    layers.caught\nexcept AttributeError:\n    pass\n"
        "def f(named):\n    return named.anything\n"
    )
    assert [f.message for f in report.findings] == ["vllm.layers has no gone"]


def test_a_pattern_that_matches_nothing_is_refused(make_tree: Callable[..., object]):
    with pytest.raises(BadInput, match="no Python file matches"):
        check(make_tree(), modules=["vllm/nothing*.py"])


def test_a_file_that_does_not_parse_is_a_finding_not_a_crash(check_client: Check):
    report = check_client("from vllm.broken import x\n", {"vllm/broken.py": "def (:\n"})
    assert [(f.code.code, f.path) for f in report.findings] == [("CT001", "vllm/broken.py")]
