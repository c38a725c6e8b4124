# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vllm-exaone project
"""EXAONE 4.5's processor: Qwen2.5-VL's with a tokenizer of another family.

transformers before 5.8 has no processor of the model's own, and before 5 Qwen2.5-VL's accepts only
Qwen2 tokenizers.
"""

from transformers.models.qwen2_5_vl.processing_qwen2_5_vl import Qwen2_5_VLProcessor


class Exaone4_5_Processor(Qwen2_5_VLProcessor):  # noqa: N801
    """Turns text with ``<|image_pad|>`` and ``<|video_pad|>`` and the media into model inputs."""

    tokenizer_class = "AutoTokenizer"


__all__ = ["Exaone4_5_Processor"]
