"""Shadows, registries, dependencies, configs, ignore comments, dating and SARIF."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tools.contract import CODES, ContractReport, Severity, unused_everywhere
from tools.contract.check import check
from tools.contract.dependencies import missing_ranges
from tools.contract.sarif import to_sarif
from tools.contract.since import bisect_since
from tools.errors import Unavailable
from tools.series.requirements import admitted
from tools.tree import MappingTree, Tree

Check = Callable[..., ContractReport]
MakeTree = Callable[..., MappingTree]
CLIENT = "vllm/models/client.py"
OVERRIDE = """
from vllm.layers import helper
from vllm.models.tower import Tower
class Mine(Tower):
    def forward(self, x, seqlens):
        return helper(x, 1)
"""
TOWER = """
from torch import nn
class Tower(nn.Module):
    switch = {switch}
    def forward(self, x, seqlens{more}):
        {body}
        return x
"""


def tower(switch: str = "False", more: str = "", body: str = "pass") -> str:
    return TOWER.format(switch=switch, more=more, body=body)


def codes(report: ContractReport) -> list[str]:
    return [finding.code.code for finding in report.findings]


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (tower(), []),
        (tower(body='"""Only a docstring."""'), []),
        (tower(body="x = x + 1"), ["CT302"]),
        (tower(more=", mask=None"), ["CT301"]),
        (tower(switch="True"), ["CT304"]),
        (tower().replace("def forward", "def other"), ["CT306"]),
        (tower() + "    supports_thing = True\n", ["CT304"]),
    ],
)
def test_a_change_of_what_is_overridden_or_inherited_is_reported(
    make_tree: MakeTree, now: str, expected: list[str]
):
    files = {CLIENT: OVERRIDE, "vllm/models/tower.py": tower()}
    old = make_tree(files)
    new = make_tree(files | {"vllm/models/tower.py": now})
    report = check(new, modules=[CLIENT], baseline=old)
    assert codes(report) == expected


def test_the_diff_shows_the_one_method_only(make_tree: MakeTree):
    old = make_tree({CLIENT: OVERRIDE, "vllm/models/tower.py": tower()})
    new = make_tree({CLIENT: OVERRIDE, "vllm/models/tower.py": tower(body="x = x + 1")})
    (finding,) = check(new, modules=[CLIENT], baseline=old).findings
    assert "+        x = x + 1" in finding.diff
    assert "switch" not in finding.diff


@pytest.mark.parametrize(
    ("signature", "severity"),
    [
        ("a, b, *, c=0, d=0", Severity.NOTE),
        ("b, a, *, c=0", Severity.WARNING),
        ("a, b=1, *, c=0", Severity.NOTE),
    ],
)
def test_a_changed_signature_of_something_called_matters_where_calls_can_mean_else(
    make_tree: MakeTree, signature: str, severity: Severity
):
    files = {CLIENT: OVERRIDE}
    layers = "HIDDEN = 1\nclass Norm:\n    pass\ndef helper({0}):\n    return a\n"
    old = make_tree(files | {"vllm/layers.py": layers.format("a, b, *, c=0")})
    new = make_tree(files | {"vllm/layers.py": layers.format(signature)})
    found = check(new, modules=[CLIENT], baseline=old).findings
    assert {(f.code.code, f.severity) for f in found} == {("CT305", severity)}


REGISTRY = """
_MULTIMODAL_MODELS = {"MyArch": ("mine", "Mine")}
_SPECULATIVE_DECODING_MODELS = {"MyMTP": ("mine_mtp", "MyMTP")}
"""
MODELS = {
    "vllm/model_executor/models/registry.py": REGISTRY,
    "vllm/model_executor/models/mine.py": "class Mine:\n    pass\n",
    "vllm/model_executor/models/mine_mtp.py": """
        class Inner:
            def __init__(self, *, vllm_config):
                config = vllm_config.model_config.hf_config
                self.size = config.hidden_size
                self.layers = getattr(config, "layers", 1)
                self.text = config.text_config.anything

        class MyMTP:
            def __init__(self, *, vllm_config):
                self.model = Inner(vllm_config=vllm_config)
        """,
    "vllm/config/speculative.py": """
        from typing import Literal
        MTPModelTypes = Literal["mine_mtp"]
        class SpeculativeConfig:
            @staticmethod
            def hf_config_override(hf_config):
                if "mine" in hf_config.model_type:
                    hf_config.model_type = "mine_mtp"
                if hf_config.model_type == "mine_mtp":
                    hf_config.update({"architectures": ["MyMTP"]})
                return hf_config
        """,
    "vllm/transformers_utils/config.py": "_CONFIG_REGISTRY = Lazy(mine='MineConfig')\n",
    "vllm/transformers_utils/configs/__init__.py": "from .mine import MineConfig\n",
    "vllm/transformers_utils/configs/mine.py": """
        class MineConfig:
            def __init__(self, text_config=None, layers=1):
                self.text_config = text_config
        """,
}
MODEL_CLIENT = ["vllm/model_executor/models/mine*.py"]


def test_config_reads_of_a_drafter_are_compared_with_its_targets_config(make_tree: MakeTree):
    report = check(make_tree(MODELS), modules=MODEL_CLIENT)
    assert [f.message for f in report.findings] == [
        (
            "Inner.__init__ reads `hidden_size` of its config; "
            "MineConfig does not declare `hidden_size`"
        )
    ]


@pytest.mark.parametrize("names", ['("layers", "hidden_size")', '("layers", _SIZE)'])
def test_attributes_that_a_loop_sets_by_name_are_declared(make_tree: MakeTree, names: str):
    config = f"""
        _SIZE = "hidden_size"
        class MineConfig:
            def __init__(self, text_config=None):
                self.text_config = text_config
                for name in {names}:
                    setattr(self, name, getattr(text_config, name))
        """
    files = MODELS | {"vllm/transformers_utils/configs/mine.py": config}
    assert not check(make_tree(files), modules=MODEL_CLIENT).findings


@pytest.mark.parametrize(
    ("path", "old", "new", "expected"),
    [
        ("vllm/model_executor/models/registry.py", '"Mine")', '"Gone")', "CT401"),
        ("vllm/model_executor/models/registry.py", "_MODELS = {", "_MODELS = make({", "CT403"),
        ("vllm/config/speculative.py", '["MyMTP"]', '["Unknown", "MyMTP"]', "CT404"),
        ("vllm/config/speculative.py", 'Literal["mine_mtp"]', 'Literal["other"]', "CT404"),
    ],
)
def test_registries_that_lead_nowhere_or_disagree_are_reported(
    make_tree: MakeTree, path: str, old: str, new: str, expected: str
):
    text = MODELS[path].replace(old, new)
    text = (
        text.replace('"Mine")}', '"Mine")})').replace('"MyMTP")}', '"MyMTP")})')
        if ("make(" in new)
        else text
    )
    assert expected in codes(check(make_tree(MODELS | {path: text}), modules=MODEL_CLIENT))


class FakeIndex:
    """An index in memory that counts what it is asked."""

    def __init__(self, versions: Sequence[str], having: Mapping[str, Iterable[str]]) -> None:
        self.all = [Version(v) for v in versions]
        self.having = {name: {Version(v) for v in held} for name, held in having.items()}
        self.asked: list[Version] = []

    def versions(self, distribution: str, specifier: SpecifierSet) -> Sequence[Version]:
        return sorted(specifier.filter(self.all))

    def present(
        self, distribution: str, version: Version, names: Iterable[tuple[str, str]]
    ) -> Mapping[tuple[str, str], bool]:
        self.asked.append(version)
        return {name: version in self.having.get(name[1], self.all) for name in names}

    def tree(self, distribution: str, version: Version) -> Tree:
        raise Unavailable("no wheels here")


VERSIONS = [f"4.{minor}" for minor in range(40)]


def test_the_boundary_of_a_range_is_found_without_looking_at_every_version():
    index = FakeIndex(VERSIONS, {"New": VERSIONS[23:], "Never": []})
    names = [("lib", "New"), ("lib", "Never"), ("lib", "Always")]
    found = missing_ranges("lib", index.versions("lib", SpecifierSet()), names, index)
    assert found == {
        ("lib", "New"): [(Version("4.0"), Version("4.22"))],
        ("lib", "Never"): [(Version("4.0"), Version("4.39"))],
    }
    assert len(index.asked) < 12


def test_names_missing_from_the_newest_version_are_errors_older_gaps_warnings(make_tree: MakeTree):
    source = (
        "from lib import New, Never, Old\n"
        "try:\n    from lib import Guarded\nexcept ImportError:\n    pass\n"
    )
    tree = make_tree({CLIENT: source, "requirements/common.txt": "lib >= 4.0, != 4.1 # why\n"})
    index = FakeIndex(
        VERSIONS, {"New": VERSIONS[23:], "Never": [], "Old": VERSIONS[:5], "Guarded": []}
    )
    report = check(tree, modules=[CLIENT], dependencies=index)
    severities = {f.contract[0].name: f.severity for f in report.findings}
    assert severities == {
        "New": Severity.WARNING,
        "Never": Severity.ERROR,
        "Old": Severity.ERROR,
    }


def test_an_index_that_cannot_be_read_leaves_the_rest_of_the_report(make_tree: MakeTree):
    class Down(FakeIndex):
        def versions(self, distribution: str, specifier: SpecifierSet) -> Sequence[Version]:
            raise Unavailable("no network")

    source = "from lib import x\nimport vllm.gone\n"
    tree = make_tree({CLIENT: source, "requirements/common.txt": "lib\n"})
    report = check(tree, modules=[CLIENT], dependencies=Down([], {}))
    assert codes(report) == ["CT101"]
    assert report.unchecked == ("lib: no network",)


def test_requirements_follow_includes_markers_and_comments():
    files = {
        "requirements/cuda.txt": b"-r common.txt\ntorch==2.11.0\n--extra-index-url x\n",
        "requirements/common.txt": b'a>=1 # c\nb<2; sys_platform == "win32"\nA!=3\n\xc3\xa9\n',
    }
    found = admitted(MappingTree(files))
    assert {name: str(s) for name, s in found.items()} == {"torch": "==2.11.0", "a": "!=3,>=1"}


def test_an_ignore_comment_needs_a_code_and_a_reason_and_a_finding(check_client: Check):
    report = check_client(
        "import vllm.gone  # contract: ignore[CT101] a build puts it there\n"
        "# contract: ignore[CT101] the next line of code\n\nimport vllm.gone_too\n"
        "import vllm.third  # contract: ignore[CT101]\n"
        "import vllm  # contract: ignore[CT102] nothing\n"
        "import vllm  # contract: ignore[CT000] unknown\n"
    )
    assert [(f.code.code, f.line) for f in report.findings] == [
        ("CT101", 5),
        ("CT902", 5),
        ("CT901", 6),
        ("CT902", 7),
    ]
    assert [f.line for f in report.suppressed] == [1, 4]


def test_a_comment_that_one_of_several_releases_needs_is_not_unused(make_tree: MakeTree):
    source = "import vllm.new  # contract: ignore[CT101] came with the second release\n"
    trees = [make_tree({CLIENT: source}), make_tree({CLIENT: source, "vllm/new.py": ""})]
    reports = [check(tree, modules=[CLIENT], unused_ignores=False) for tree in trees]
    assert [codes(report) for report in reports] == [[], []]
    assert unused_everywhere(reports) == ()
    assert [f.code.code for f in unused_everywhere(reports[1:])] == ["CT901"]


def test_findings_are_dated_by_halving(make_tree: MakeTree):
    client = "from vllm.layers import helper\n\n"
    trees = [
        make_tree({CLIENT: client} if n < 11 else {CLIENT: client, "vllm/layers.py": "x = 1\n"})
        for n in range(20)
    ]
    made: list[int] = []

    def provider(number: int) -> Tree:
        made.append(number)
        return trees[number]

    releases = [(f"v{n}", lambda n=n: provider(n)) for n in range(20)]
    report = bisect_since(check(trees[-1], modules=[CLIENT]), releases, modules=[CLIENT])
    assert [f.since for f in report.findings] == ["v11"]
    assert len(made) <= 5


def test_sarif_and_json_hold_both_sites_and_the_suppressed(check_client: Check):
    report = check_client(
        "from vllm.layers import Gone\nimport vllm.x  # contract: ignore[CT101] reason\n"
    )
    run = json.loads(to_sarif(report, "v1"))["runs"][0]
    assert [r["ruleId"] for r in run["results"]] == ["CT102", "CT101"]
    assert run["results"][1]["suppressions"] == [{"kind": "inSource"}]
    assert {rule["id"] for rule in run["tool"]["driver"]["rules"]} == {"CT101", "CT102"}
    plain = json.loads(report.to_json())
    assert [site["path"] for site in plain["findings"][0]["contract"]] == [CLIENT, "vllm/layers.py"]


def test_codes_are_unique_and_each_is_documented():
    text = (Path(__file__).parents[3] / "tools/contract/README.md").read_text()
    assert len(CODES) == len({code.name for code in CODES.values()})
    assert [code for code in CODES if code not in text] == []
