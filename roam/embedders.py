"""The sentence encoder that retrieval uses; also the owner of the tokens in which budgets are counted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roam.bases import ResolvedBase, resolve_base
from roam.interfaces import Embedder
from roam.relation_model import quiet_loading

if TYPE_CHECKING:
    from tokenizers import Tokenizer

DEFAULT_EMBEDDER = "all-MiniLM-L6-v2"
MAX_TOKENS = 256
BATCH = 64


class TransformerEmbedder:
    """Mean-pooled, L2-normalised sentence vectors of a transformer encoder, computed in torch.

    Weights and tokenizer are loaded at first use: a store that is only read by id never pays for them.
    """

    def __init__(self, base: ResolvedBase) -> None:
        self.base = base
        self.digest = f"{base.name}@{base.content_hash[:16]}:mean"

    @cached_property
    def dimension(self) -> int:
        return int(json.loads((self.base.path / "config.json").read_text(encoding="utf-8"))["hidden_size"])

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self.base.path / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    @cached_property
    def _model(self) -> Any:
        import torch
        from transformers import AutoModel

        device = "cuda" if torch.cuda.is_available() else "cpu"
        with quiet_loading():
            model = AutoModel.from_pretrained(self.base.path, dtype=torch.float32, use_safetensors=True)
        return model.to(device).eval()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return L2-normalised vectors, shape (len(texts), dimension). Longer texts are cut at 256 tokens."""
        import torch

        out = np.zeros((len(texts), self.dimension), dtype=np.float32)
        encoded = [encoding.ids[:MAX_TOKENS] for encoding in self._tokenizer.encode_batch(list(texts))]
        order = sorted(range(len(texts)), key=lambda index: len(encoded[index]))
        for start in range(0, len(order), BATCH):
            chunk = order[start : start + BATCH]
            width = max(len(encoded[index]) for index in chunk)
            ids = torch.zeros((len(chunk), width), dtype=torch.long)
            mask = torch.zeros((len(chunk), width), dtype=torch.long)
            for row, index in enumerate(chunk):
                ids[row, : len(encoded[index])] = torch.tensor(encoded[index])
                mask[row, : len(encoded[index])] = 1
            device = next(self._model.parameters()).device
            ids, mask = ids.to(device), mask.to(device)
            with torch.inference_mode():
                hidden = self._model(input_ids=ids, attention_mask=mask).last_hidden_state
                weight = mask.unsqueeze(-1).to(hidden.dtype)
                pooled = (hidden * weight).sum(1) / weight.sum(1)
                out[chunk] = torch.nn.functional.normalize(pooled, dim=1).cpu().numpy()
        return out

    def count_tokens(self, text: str) -> int:
        """Length of `text` in word pieces, without special tokens."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def truncate(self, text: str, tokens: int) -> str:
        """The longest prefix of `text` of at most `tokens` word pieces."""
        if tokens <= 0:
            return ""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        if len(encoding.ids) <= tokens:
            return text
        end: int = encoding.offsets[tokens - 1][1]
        return text[:end].rstrip()


@lru_cache(maxsize=4)
def load_embedder(name: str | Path = DEFAULT_EMBEDDER) -> Embedder:
    """Load an encoder by hub id, short name or folder; raises `BaseModelError` when it can't be found."""
    return TransformerEmbedder(resolve_base(name))
