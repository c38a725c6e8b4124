import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tools.smoke import served

CHILD = Path(served.__file__).parent / "children" / "speed_child.py"


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("tested_speed", CHILD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_both_take_turns_and_neither_is_always_first(
    child: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    clock = [0.0]

    def work(name: str, seconds: float) -> None:
        calls.append(name)
        clock[0] += seconds

    monkeypatch.setattr(child.time, "process_time", lambda: clock[0])
    spent = child.taking_turns(lambda: work("first", 1.0), lambda: work("second", 3.0), 4)
    assert spent == [1.0, 3.0] * 4
    assert calls == ["second", "first", "first", "second"] * 2


def test_other_sizes_leave_the_engines_configuration_alone(child: ModuleType) -> None:
    vision = SimpleNamespace(depth=28, hidden_size=2048)
    hf_config = SimpleNamespace(vision_config=vision)
    config = SimpleNamespace(model_config=SimpleNamespace(hf_config=hf_config))
    small = child.sized(config, {"depth": 2})
    assert vars(small.model_config.hf_config.vision_config) == {"depth": 2, "hidden_size": 2048}
    assert vision.depth == 28


def test_the_overlay_is_imported_beside_what_is_there(
    child: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    models = tmp_path / "model_executor" / "models"
    processors = tmp_path / "transformers_utils" / "processors"
    for directory in (models, processors):
        directory.mkdir(parents=True)
    (processors / "exaone4_5.py").write_text("ours = 'laid'\n")
    (models / "exaone4_5_compat.py").write_text("ours = 'compat'\n")
    (models / "exaone4_5.py").write_text("ours = 'model'\n")
    there = ModuleType("vllm.transformers_utils.processors.exaone4_5")
    sys.modules[there.__name__] = there
    assert child.overlay(tmp_path, "exaone4_5").ours == "model"
    assert sys.modules[f"{child.MODELS}.exaone4_5_compat"].ours == "compat"
    # What the release has itself is not replaced.
    assert sys.modules[there.__name__] is there
