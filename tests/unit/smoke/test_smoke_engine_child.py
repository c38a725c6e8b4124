"""What a job needs of a machine's GPUs; torch and the hub's client are stand-ins."""

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from tools.smoke.engine import Needs, variables
from tools.smoke.environment import Environment

CHILD = Path(__file__).parents[3] / "tools/smoke/children/engine_child.py"
GIB = 1 << 30

Machine = Callable[..., Callable[[Needs | None], str]]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return how a job's needs are judged on a machine with such GPUs and such a hub."""

    def made(*, gpus: int = 1, free: float = 0.0, hub: object = None) -> Callable[..., str]:
        cuda = SimpleNamespace(
            device_count=lambda: gpus, mem_get_info=lambda: (int(free * GIB), 80 * GIB)
        )
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
        monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(HfApi=lambda: hub))
        spec = importlib.util.spec_from_file_location("engine_child_under_test", CHILD)
        assert spec
        assert spec.loader
        child = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(child)
        return lambda needs: child.lacking(needs and asdict(needs))

    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("child", "drafter_child"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return made


def test_weights_have_to_fit_with_headroom(machine: Machine) -> None:
    assert machine(free=12)(Needs(10 * GIB)) == ""
    assert machine(free=11)(Needs(10 * GIB)) == "needs 11.5 GiB, 11.0 GiB are free"


def test_weights_on_the_hub_are_sized_there(machine: Machine) -> None:
    files = [
        SimpleNamespace(rfilename="a.safetensors", size=6 * GIB),
        SimpleNamespace(rfilename="b.safetensors", size=4 * GIB),
        SimpleNamespace(rfilename="original.bin", size=90 * GIB),
        SimpleNamespace(rfilename="c.safetensors", size=None),
    ]

    def model_info(model: str, *, files_metadata: bool) -> SimpleNamespace:
        assert (model, files_metadata) == ("org/model", True)
        return SimpleNamespace(siblings=files)

    hub = SimpleNamespace(model_info=model_info)
    assert machine(free=11, hub=hub)(Needs(hub_id="org/model")).startswith("needs 11.5 GiB")


def test_a_hub_that_is_away_is_left_to_the_engine(machine: Machine) -> None:
    def model_info(model: str, **_settings: object) -> None:
        raise OSError(model)

    assert machine(hub=SimpleNamespace(model_info=model_info))(Needs(hub_id="org/model")) == ""


def test_two_workers_need_two_gpus(machine: Machine) -> None:
    assert machine(gpus=1)(Needs(devices=2)) == "needs 2 GPUs, 1 are here"
    assert machine(gpus=2)(Needs(devices=2)) == ""


def test_a_cpu_is_asked_for_nothing(machine: Machine) -> None:
    assert machine(gpus=0)(None) == ""


def test_an_engine_for_the_hub_is_not_kept_from_it() -> None:
    place = Environment(Path("/nowhere"), "")
    offline = {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}
    assert offline <= variables(place).keys()
    assert not offline & variables(place, online=True).keys()
