"""Bases in 4 bits (QLoRA, Dettmers et al. 2023): one way of loading them, for training and for running an adapter."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any, Final

from roam.errors import BaseModelError

NF4: Final = "nf4"
HEADS: Final = ("classifier", "score", "head", "pooler", "lm_head")
"""Modules that keep their precision: a head is trained whole, and 4-bit weights cannot be."""


def four_bit(heads: Sequence[str] = HEADS) -> Any:
    """The settings with which transformers stores a base's linear layers as NF4 when it loads it.

    Arithmetic is in bf16 on a GPU and in fp32 elsewhere. Raises `BaseModelError` where bitsandbytes is missing.
    """
    if importlib.util.find_spec("bitsandbytes") is None:
        raise BaseModelError(
            "bitsandbytes is not installed, and 4-bit bases need it: pip install bitsandbytes, or take a recipe "
            "without quantisation"
        )
    import torch
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type=NF4, bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16 if torch.cuda.is_available() else torch.float32,
        llm_int8_skip_modules=list(heads),  # the name is older than the 4-bit settings, for which it counts too
    )  # fmt: skip


def placement(quantisation: str, device: str) -> dict[str, Any]:
    """Arguments of `from_pretrained` for a base stored this way; empty for plain weights."""
    if not quantisation:
        return {}
    if quantisation != NF4:
        raise BaseModelError(
            f"quantisation {quantisation!r} is unknown; this version loads {NF4!r}: upgrade, or retrain"
        )
    return {"quantization_config": four_bit(), "device_map": {"": device}}
