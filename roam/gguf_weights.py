"""From a GGUF file to a folder that `from_pretrained` can read: dequantised weights as fp16 safetensors, and tokenizer.

The packages `transformers` and `gguf` do the reading. Dequantised weights are not the ones that were quantised, so they
are a base of their own, with its own content hash.
"""

from __future__ import annotations

import contextlib
import io
from importlib.util import find_spec
from pathlib import Path

from roam.errors import BaseModelError


def convert_gguf(file: Path, target: Path) -> None:
    """Write the dequantised model and the tokenizer of a GGUF file into the folder `target`, which must exist.

    fp16 holds a scale times a 4-bit step well enough (bf16 would not), at half the size of fp32. Raises
    `BaseModelError` without the package `gguf` and for a file that cannot be read.
    """
    if find_spec("gguf") is None:
        raise BaseModelError(
            f"{file.name} is read by the package gguf, which is not installed: run `pip install gguf`, then try again"
        )
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    from roam.relation_model import quiet_loading

    try:
        with quiet_loading(), contextlib.redirect_stderr(io.StringIO()):  # its own progress bars can't be switched off
            tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
            model = AutoModelForCausalLM.from_pretrained(
                file.parent, gguf_file=file.name, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
            )
            model.half().save_pretrained(target)
            tokenizer.save_pretrained(target)
    except (OSError, ValueError, KeyError, IndexError, RuntimeError) as error:
        raise BaseModelError(f"{file} is no readable GGUF file ({error}); fetch it again") from error
