"""What an import statement names, read from its source alone."""

import ast
import importlib.util


def imported_module(node: ast.ImportFrom, package: str) -> str:
    """Return the absolute name of the module that names are imported from.

    Args:
        node: The statement.
        package: The package that it stands in: of ``vllm/config/__init__.py``, ``vllm.config``.

    Returns:
        The name; "" where it climbs out of the topmost package, which Python refuses.
    """
    try:
        return importlib.util.resolve_name("." * node.level + (node.module or ""), package)
    except ImportError:
        return ""
