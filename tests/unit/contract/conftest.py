"""A small upstream made of text, for tests of the contract checker."""

from collections.abc import Callable
from textwrap import dedent

import pytest

from tools.contract import ContractReport
from tools.contract.check import check
from tools.tree import MappingTree

MakeTree = Callable[..., MappingTree]

UPSTREAM = {
    "vllm/__init__.py": "",
    "vllm/models/__init__.py": "",
    "vllm/layers.py": """
        from torch import nn

        class Norm(nn.Module):
            def __init__(self, size, eps=1e-6):
                super().__init__()

            def forward(self, x, residual=None):
                return x

        def helper(a, b, *, c=0):
            return a

        HIDDEN = 1
        """,
    "vllm/models/tower.py": """
        import torch
        from torch import nn
        from vllm.layers import Norm

        class Block(nn.Module):
            def __init__(self, dim, prefix=""):
                super().__init__()
                self.norm = Norm(dim)

            def forward(self, x, seqlens, max_seqlen=None, lengths=None):
                return self.norm(x)

        class Tower(nn.Module):
            def __init__(self, config, prefix=""):
                super().__init__()
                self.blocks = nn.ModuleList([Block(8) for _ in range(config.depth)])

            def forward(self, x, seqlens):
                for index, block in enumerate(self.blocks):
                    x = block(x, seqlens=seqlens, max_seqlen=1, lengths=None)
                return x
        """,
}
CLIENT = "vllm/models/client.py"


def _tree(files: dict[str, str] | None = None) -> MappingTree:
    texts = UPSTREAM | (files or {})
    return MappingTree({path: dedent(text).encode() for path, text in texts.items()})


@pytest.fixture
def make_tree() -> MakeTree:
    """Return a function that lays files, by path, over the small upstream."""
    return _tree


@pytest.fixture
def check_client(make_tree: MakeTree) -> Callable[..., ContractReport]:
    """Return a function that checks the text of one client module in the small upstream."""

    def run(source: str, files: dict[str, str] | None = None) -> ContractReport:
        return check(make_tree({CLIENT: source} | (files or {})), modules=[CLIENT])

    return run
