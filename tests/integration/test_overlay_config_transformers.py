"""The overlay's configuration under the transformers that releases of vLLM are used with."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = (
    Path(__file__).parents[2] / "vllm_exaone" / "transformers_utils" / "configs" / "exaone4_5.py"
)
# Run by the other Python: reads a configuration from disk as vLLM does, and says what it got.
PROGRAM = """
import copy, importlib.util, json, pickle, sys
spec = importlib.util.spec_from_file_location("overlay_config", sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules["overlay_config"] = module
spec.loader.exec_module(module)
config = module.Exaone4_5_Config.from_pretrained(sys.argv[2])
again = pickle.loads(pickle.dumps(copy.deepcopy(config)))
assert module.Exaone4_5_Config.from_dict(config.to_dict()).to_dict() == config.to_dict()
text = again.get_text_config()
rope = getattr(text, "rope_parameters", None) or text.rope_scaling
print(json.dumps({
    "layers": len(text.layer_types),
    "theta": rope.get("rope_theta") or text.rope_theta,
    "factor": rope["factor"],
    "image": again.image_token_id,
    "drafter": again.num_nextn_predict_layers,
    "vocabulary": again.vocab_size,
    "key_heads": again.vision_config.num_key_value_heads,
    "tied": text.tie_word_embeddings,
}))
"""
TEXT = {
    "model_type": "exaone4_5_text",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_nextn_predict_layers": 1,
    "sliding_window": 16,
    "sliding_window_pattern": "LLLG",
    "layer_types": ["sliding_attention"] * 3 + ["full_attention", "sliding_attention"],
    "vocab_size": 512,
}
ROPE = {
    "rope_type": "llama3",
    "factor": 16.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
    "rope_theta": 1e6,
}


@pytest.mark.network
@pytest.mark.parametrize("spelling", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("transformers", ["4.55.4", "4.57.6", "5.5.4", "5.8.0", "5.19.0", "5.24.0"])
def test_every_published_shape_is_read_under(
    transformers: str, spelling: str, tmp_path: Path, shared_cache: Path
) -> None:
    written = {
        "architectures": ["Exaone4_5_ForConditionalGeneration"],
        "model_type": "exaone4_5",
        "image_token_id": 67,
        "video_token_id": 68,
        "text_config": {**TEXT, spelling: ROPE},
        "vision_config": {"model_type": "exaone4_5_vision", "num_key_value_heads": 2},
    }
    (tmp_path / "config.json").write_text(json.dumps(written), "utf-8")

    done = subprocess.run(
        [
            *(sys.executable, "-m", "uv", "run", "--quiet", "--no-project", "--isolated"),
            *("--with", f"transformers=={transformers}", "--", "python", "-c", PROGRAM),
            *(str(SOURCE), str(tmp_path)),
        ],
        env={**os.environ, "UV_CACHE_DIR": str(shared_cache / "uv")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "layers": 4,
        "theta": 1e6,
        "factor": 16.0,
        "image": 67,
        "drafter": 1,
        "vocabulary": 512,
        "key_heads": 2,
        "tied": False,
    }
