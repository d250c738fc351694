"""How a pair becomes token ids: one layout for training's models, the torch path and ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roam.records import Pair

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer


def close_pairs(tokenizer: Any) -> bool:
    """Make a tokenizer that adds no special tokens (a decoder's) lay pairs out as OLD EOS NEW EOS; True if it did.

    Without it, two texts would run into each other, and the last token, whose state a decoder classifies by, would be
    a word that has only just been read. Changes the fast tokenizer of transformers in place; doing it twice is the same
    as once.
    """
    from tokenizers import processors

    backend = tokenizer.backend_tokenizer
    if backend.num_special_tokens_to_add(is_pair=True) or tokenizer.eos_token is None:
        return False
    end = tokenizer.eos_token
    form = processors.TemplateProcessing(
        single=["$A", end], pair=["$A", end, "$B:1", f"{end}:1"], special_tokens=[(end, tokenizer.eos_token_id)]
    )
    before = backend.post_processor
    backend.post_processor = form if before is None else processors.Sequence([before, form])
    return True


Features = Mapping[str, NDArray[np.int64]]
"""Model inputs by name, each of shape (batch, tokens)."""


class PairEncoder:
    """The tokenizer's two-segment form, OLD first, longer texts cut to `max_length` tokens from the longer side.

    `inputs` are the names that the model takes, of input_ids, attention_mask and token_type_ids.
    """

    def __init__(self, tokenizer: Tokenizer, *, max_length: int, pad_id: int, inputs: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._tokenizer.enable_truncation(max_length, strategy="longest_first")
        self._tokenizer.no_padding()
        self.pad_id = pad_id
        self.inputs = tuple(inputs)

    @classmethod
    def of(cls, tokenizer: Any, max_length: int) -> PairEncoder:
        """From a fast tokenizer of transformers, which is copied: its own truncation settings stay as they are."""
        from tokenizers import Tokenizer

        copy = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        return cls(copy, max_length=max_length, pad_id=tokenizer.pad_token_id, inputs=tokenizer.model_input_names)

    def encode(self, pairs: Sequence[Pair]) -> list[Encoding]:
        """Token ids of each pair, without padding."""
        return list(self._tokenizer.encode_batch([(pair.old, pair.new) for pair in pairs]))

    def batch(self, encodings: Sequence[Encoding]) -> dict[str, NDArray[np.int64]]:
        """Model inputs of one batch, padded on the right to its longest pair."""
        shape = len(encodings), max(len(encoding) for encoding in encodings)
        ids = np.full(shape, self.pad_id, dtype=np.int64)
        mask, types = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        for row, encoding in enumerate(encodings):
            width = len(encoding)
            ids[row, :width], mask[row, :width], types[row, :width] = encoding.ids, 1, encoding.type_ids
        features = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        return {name: features[name] for name in self.inputs}
