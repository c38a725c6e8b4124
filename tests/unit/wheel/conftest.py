"""Fixtures of the wheel tests."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.unit.wheel.wheel_sample import make_wheel_in


@pytest.fixture
def make_wheel(tmp_path: Path) -> Callable[..., Path]:
    """Write a sample wheel; see :func:`wheel_sample.make_wheel_in`."""
    return partial(make_wheel_in, tmp_path / "upstream")
