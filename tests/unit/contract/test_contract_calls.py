"""Calls: each way a call can stop fitting the signature it meets."""

from collections.abc import Callable

import pytest

from tools.contract import ContractReport
from tools.contract.signature import Arguments, Parameter, Signature, mismatches

Check = Callable[..., ContractReport]

HEAD = """
import torch
from functools import partial
from torch import nn
from vllm.layers import Norm, helper
from vllm.models.tower import Block, Tower
"""


def messages(report: ContractReport) -> list[str]:
    return [f"{finding.code.code} {finding.message}" for finding in report.findings]


def block(parameters: str, extra: str = "") -> str:
    return (
        HEAD
        + f"""
{extra}
class MyBlock(nn.Module):
    def forward(self, {parameters}):
        return x

class MyTower(Tower):
    def __init__(self, config):
        super().__init__(config)
        self.blocks = nn.ModuleList([MyBlock() for _ in range(2)])
"""
    )


def test_an_inherited_forward_that_passes_a_keyword_the_override_lacks_is_reported(
    check_client: Check,
):
    report = check_client(block("x, seqlens, max_seqlen=None"))
    (message,) = messages(report)
    assert message == (
        "CT201 MyBlock.forward does not take `lengths`; called by Tower.forward as inherited by "
        "MyTower in vllm/models/tower.py"
    )
    caller, provider = report.findings[0].contract
    assert (caller.path, provider.path) == ("vllm/models/tower.py", "vllm/models/client.py")


@pytest.mark.parametrize("parameters", ["x, seqlens, max_seqlen=None, lengths=None", "x, **kwargs"])
def test_an_override_that_takes_everything_is_accepted(check_client: Check, parameters: str):
    assert messages(check_client(block(parameters))) == []


def test_an_override_that_requires_more_than_the_parent_passes_is_reported(check_client: Check):
    report = check_client(block("x, seqlens, extra, max_seqlen=None, lengths=None"))
    assert [f.code.code for f in report.findings] == ["CT202"]


@pytest.mark.parametrize(
    "container",
    [
        "nn.ModuleList([MyBlock() for _ in range(2)])",
        "nn.ModuleList(MyBlock() for _ in range(2))",
        "nn.ModuleList([make() for make in [lambda: MyBlock()]])",
        "[MyBlock()]",
    ],
)
def test_blocks_are_found_in_every_container(check_client: Check, container: str):
    source = block("x").replace("nn.ModuleList([MyBlock() for _ in range(2)])", container)
    assert len(check_client(source).findings) >= 1


def test_blocks_made_by_an_upstream_helper_from_a_lambda_are_found(check_client: Check):
    source = block("x", "from vllm.make import make_layers").replace(
        "self.blocks = nn.ModuleList([MyBlock() for _ in range(2)])",
        "self.start, self.blocks = make_layers(2, lambda prefix: MyBlock())",
    )
    helper = """
        from torch import nn
        def make_layers(count, layer_fn):
            layers = nn.ModuleList([layer_fn(prefix=str(i)) for i in range(count)])
            return 0, layers
        """
    assert len(check_client(source, {"vllm/make.py": helper}).findings) >= 1


def test_a_union_is_reported_only_where_no_member_fits(check_client: Check):
    source = block("x, seqlens, max_seqlen=None").replace(
        "[MyBlock() for _ in range(2)]", "[MyBlock() if config.a else Block(1) for _ in range(2)]"
    )
    assert messages(check_client(source)) == []


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("Norm()", "CT202"),
        ("Norm(1, 2, 3)", "CT203"),
        ("Norm(1, size=2)", "CT204"),
        ("Norm(1, epsilon=2)", "CT201"),
        ("helper(1, 2, 3)", "CT203"),
        ("helper(1, c=2)", "CT202"),
        ("partial(helper, 1)(2, 3)", "CT203"),
        ("partial(Norm, epsilon=1)(2)", "CT201"),
        ("Norm(1)(1, 2, 3)", "CT203"),
    ],
)
def test_calls_of_upstream_functions_and_constructors_are_checked(
    check_client: Check, call: str, code: str
):
    report = check_client(f"{HEAD}\ndef run():\n    return {call}\n")
    assert [f.code.code for f in report.findings] == [code]


@pytest.mark.parametrize(
    "call", ["Norm(1)", "Norm(*a)", "Norm(**a)", "helper(*a, c=1)", "partial(Norm, eps=1)(2)"]
)
def test_calls_that_fit_or_may_fit_are_accepted(check_client: Check, call: str):
    assert messages(check_client(f"{HEAD}\ndef run(a):\n    return {call}\n")) == []


def test_two_argument_super_starts_behind_the_named_class(check_client: Check):
    report = check_client(
        f"{HEAD}\nclass Mine(Tower):\n    def __init__(self):\n"
        "        super(Tower, self).__init__()\n"
    )
    assert messages(report) == []


def test_a_class_that_shadows_its_imported_base_resolves_to_both(check_client: Check):
    report = check_client(
        f"{HEAD}\nclass Block(Block):\n    def __init__(self, dim, extra):\n"
        "        super().__init__(dim, unknown=1)\n\ndef run():\n    return Block(1, extra=2)\n"
    )
    assert [f.code.code for f in report.findings] == ["CT201"]


def test_a_function_behind_an_unknown_decorator_has_no_known_signature(check_client: Check):
    source = "from x import wrap\n@wrap\ndef inner(a):\n    return a\ndef run():\n    inner()\n"
    assert messages(check_client(source)) == []


@pytest.mark.parametrize(
    ("table", "other", "codes"),
    [
        ('{"x": 0, "y": 0}', "y", []),
        ('{"x": 0, "y": 0, "z": 0}', "y", ["CT206"]),
        ('{"x": 0}', "y", ["CT207"]),
        # Nothing says that the tensor is more than a scalar.
        ('{"x": 0}', "yy", []),
        ("{**TABLE}", "y", []),
    ],
)
def test_dimension_tables_are_compared_with_forward_and_with_other_tables(
    check_client: Check, table: str, other: str, codes: list[str]
):
    source = (
        HEAD
        + f"""
from vllm.compile import support
@support(dynamic_arg_dims={table})
class Mine(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor, n: int):
        return x
"""
    )
    files = {
        "vllm/compile.py": "def support(**kw):\n    return lambda cls: cls\n",
        "vllm/models/other.py": f"@support(\n    dynamic_arg_dims={{'{other}': 0}},\n)",
    }
    report = check_client(source, files)
    assert [f.code.code for f in report.findings] == codes


def test_keyword_only_and_positional_only_parameters_bind_as_python_binds_them():
    signature = Signature(
        (
            Parameter("a", True, True, False),
            Parameter("b", False, True, True),
            Parameter("c", True, False, True),
        ),
        var_positional=False,
        var_keyword=False,
    )
    assert list(mismatches(signature, Arguments(1, ("c",)))) == []
    problems = [m.code.code for m in mismatches(signature, Arguments(0, ("a", "c")))]
    assert sorted(problems) == ["CT201", "CT202"]
    assert str(signature) == "(a, b=..., *, c)"


REGISTRY = {
    "vllm/registry.py": """
        from dataclasses import dataclass

        @dataclass
        class Factories:
            info: object
            processor: object

            def build(self, ctx):
                return self.processor(self.info(ctx), cache=None)

        class Registry:
            def register(self, processor, *, info):
                def wrap(cls):
                    cls.factories = Factories(info=info, processor=processor)
                    return cls
                return wrap

        REGISTRY = Registry()
        """,
    "vllm/models/theirs.py": """
        class Info:
            def __init__(self, ctx):
                self.ctx = ctx
            def count(self, size):
                return size

        class Processor:
            def __init__(self, info, cache=None):
                self.info = info
            def run(self, size):
                return self.info.count(size)
        """,
}


@pytest.mark.parametrize(
    ("info", "processor", "expected"),
    [
        ("def count(self, size): pass", "pass", []),
        ("def count(self, size, depth): pass", "pass", ["CT202"]),
        ("def __init__(self): pass", "pass", ["CT203"]),
        ("pass", "def __init__(self, info): self.info = info", ["CT201"]),
        ("pass", "def run(self, size):\n        return self.info.count(size, 1)", ["CT203"]),
    ],
)
def test_what_is_registered_together_has_to_fit_together(
    check_client: Check, info: str, processor: str, expected: list[str]
):
    source = f"""
from vllm.registry import REGISTRY
from vllm.models.theirs import Info, Processor
class MyInfo(Info):
    {info}
class MyProcessor(Processor):
    {processor}
@REGISTRY.register(MyProcessor, info=MyInfo)
class Mine:
    pass
"""
    assert [f.code.code for f in check_client(source, REGISTRY).findings] == expected


def test_an_inherited_processor_reaches_the_info_that_it_is_registered_with(check_client: Check):
    source = """
from vllm.registry import REGISTRY
from vllm.models.theirs import Info, Processor
class MyInfo(Info):
    def count(self, size, depth):
        pass
@REGISTRY.register(Processor, info=MyInfo)
class Mine:
    pass
"""
    (finding,) = check_client(source, REGISTRY).findings
    assert finding.code.code == "CT202"
    assert "MyInfo.count requires `depth`" in finding.message
