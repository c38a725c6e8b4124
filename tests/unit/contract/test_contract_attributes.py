"""Attributes that nothing sets, switches that nothing serves, arguments that get lost."""

from collections.abc import Callable

import pytest

from tools.contract import ContractReport

Check = Callable[..., ContractReport]

BASE = {
    "vllm/config.py": """
        from dataclasses import dataclass

        @dataclass
        class Mm:
            do_normalize: bool = True

        @dataclass
        class Lora:
            max_loras: int = 1

        @dataclass
        class Config:
            mm: Mm
            lora: Lora | None
        """,
    "vllm/norm.py": """
        from torch import nn

        class Norm(nn.Module):
            @classmethod
            def make(cls, config):
                return cls() if config.mm.do_normalize else None

        def build(config):
            return inner(config)

        def inner(config):
            return Norm() if getattr(config.mm, "do_normalize", False) else None
        """,
    "vllm/base.py": """
        from torch import nn
        from vllm.config import Config
        from vllm.norm import Norm, build

        class Tower(nn.Module):
            def __init__(self, config, norm=None):
                super().__init__()

        class Model(nn.Module):
            supports_do_normalize = True

            def __init__(self, config: Config):
                super().__init__()
                self.norm = build(config)
                self.rate = 1
                self.tower = Tower(config, norm=self.norm)

            def process(self, x):
                return self._inner(x)

            def _inner(self, x):
                return self.norm(x)

            def _never_called(self):
                return self.rate
        """,
}
HEAD = """
from torch import nn
from vllm.base import Model, Tower
from vllm.config import Config, Lora
from vllm.norm import Norm, build
"""
CHAINED = "class T(Tower):\n    def __init__(self, config):\n        super().__init__(config)"


def codes(report: ContractReport) -> list[str]:
    return [finding.code.code for finding in report.findings]


def client(body: str) -> str:
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    return f"{HEAD}\nclass Mine(Model):\n    def __init__(self, config: Config):\n{lines}\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("super().__init__(config)", []),
        ("Model.__init__(self, config)", []),
        ("nn.Module.__init__(self)", ["CT211", "CT221"]),
        ("nn.Module.__init__(self)\nself.norm = None", ["CT221"]),
        ("nn.Module.__init__(self)\nself.norm = build(config)", []),
        ("nn.Module.__init__(self)\nself.norm = Norm.make(config)", []),
        ("nn.Module.__init__(self)\nsetattr(self, 'norm', build(config))", []),
        ("nn.Module.__init__(self)\nself.__dict__.update(config)", ["CT221"]),
    ],
)
def test_a_constructor_that_replaces_its_parents_has_to_do_what_it_did(
    check_client: Check, body: str, expected: list[str]
):
    assert codes(check_client(client(body), BASE)) == expected


def test_switching_the_inherited_switch_off_is_enough(check_client: Check):
    source = client("nn.Module.__init__(self)\nself.norm = None").replace(
        "class Mine(Model):", "class Mine(Model):\n    supports_do_normalize = False"
    )
    assert codes(check_client(source, BASE)) == []


def test_a_private_helper_that_nothing_reaches_does_not_count(check_client: Check):
    # ``_never_called`` reads ``self.rate``, which the replaced constructor set.
    report = check_client(client("nn.Module.__init__(self)\nself.norm = build(config)"), BASE)
    assert codes(report) == []


def test_an_attribute_that_another_module_assigns_is_not_missing(check_client: Check):
    files = BASE | {"vllm/runner.py": "def prepare(model):\n    model.norm = 1\n"}
    report = check_client(client("nn.Module.__init__(self)"), files)
    assert codes(report) == ["CT221"]


@pytest.mark.parametrize(
    ("tower", "expected"),
    [
        ("class T(Tower):\n    pass", ["CT208"]),
        (
            CHAINED,
            ["CT208"],
        ),
        (
            CHAINED.replace("__init__(config)", "__init__(config, norm=build(config))"),
            [],
        ),
        (
            "class T(Tower):\n    def __init__(self, config):\n        nn.Module.__init__(self)",
            [],
        ),
    ],
)
def test_an_option_that_the_parent_passes_to_its_tower_must_reach_the_override(
    check_client: Check, tower: str, expected: list[str]
):
    body = client("super().__init__(config)\nself.tower = T(config)")
    assert codes(check_client(body.replace(HEAD, f"{HEAD}\n{tower}\n"), BASE)) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return config.lora.max_loras", []),
        ("return config.lora.extra_size", ["CT212"]),
        ("lora = config.lora\n    return lora.extra_size if lora else 0", ["CT212"]),
        ("return getattr(config.lora, 'extra_size', 0)", []),
        ("hasattr(config.lora, 'extra_size') and config.lora.extra_size", []),
    ],
)
def test_an_attribute_that_left_a_config_class_is_reported(
    check_client: Check, body: str, expected: list[str]
):
    source = f"{HEAD}\ndef run(config: Config):\n    {body}\n"
    assert codes(check_client(source, BASE)) == expected


def test_an_annotation_through_which_nothing_exists_is_not_believed(check_client: Check):
    source = f"{HEAD}\ndef run(config: Lora):\n    return config.hidden_size + config.layers\n"
    assert codes(check_client(source, BASE)) == []


def test_a_config_class_with_subclasses_may_be_any_of_them(check_client: Check):
    files = BASE | {
        "vllm/more.py": "from vllm.config import Lora\nclass Big(Lora):\n    extra_size = 1\n"
    }
    source = f"{HEAD}\ndef run(config: Config):\n    return config.lora.extra_size\n"
    assert codes(check_client(source, files)) == []


def test_a_class_that_makes_other_objects_in_new_is_not_judged(check_client: Check):
    source = client("nn.Module.__init__(self)").replace(
        "class Mine(Model):",
        "class Mine(Model):\n    supports_do_normalize = False\n"
        "    def __new__(cls, config):\n        return Model(config)\n",
    )
    assert codes(check_client(source, BASE)) == []


@pytest.mark.parametrize(("value", "expected"), [("False", []), ("True", ["CT211"])])
def test_what_a_switched_off_flag_guards_is_not_reached(
    check_client: Check, value: str, expected: list[str]
):
    base = {
        "vllm/base.py": """
        from torch import nn
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.deep = True
                self.levels = 3

            def forward(self, x):
                if self.deep and x:
                    return self.levels
                return x
        """
    }
    source = (
        "from torch import nn\nfrom vllm.base import Model\nclass Mine(Model):\n"
        f"    def __init__(self):\n        nn.Module.__init__(self)\n        self.deep = {value}\n"
    )
    assert codes(check_client(source, base)) == expected
