"""A trained fuser: greedy generation from the shared rendering of `roam.prompts`. It proposes; use it behind the guard.

Importing this module is light; torch, transformers and peft come with the first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roam.adapters import PROBE_TOLERANCE, AdapterCard, read_card
from roam.bases import resolve_base
from roam.errors import AdapterError
from roam.prompts import FUSION_TEMPLATE, VIEW_TOKENS, fusion_prompt
from roam.records import FusionRequest
from roam.relation_model import length_batches, quiet_loading

BATCH_TOKENS: Final = 4096


class GeneratedView(NamedTuple):
    """A generated text, and whether the model ended it itself (EOS) or ran into the limit."""

    text: str
    ended: bool


def load_language_model(path: Path) -> Any:
    """The base in fp32, encoder-decoder or decoder-only as its config says."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

    encoder_decoder = AutoConfig.from_pretrained(path).is_encoder_decoder
    loader = AutoModelForSeq2SeqLM if encoder_decoder else AutoModelForCausalLM
    with quiet_loading():
        return loader.from_pretrained(path, dtype=torch.float32, use_safetensors=True)


def align_token_ids(model: Any, tokenizer: Any) -> None:
    """Same special tokens in model and tokenizer; plain greedy decoding instead of the base's own sampling settings."""
    from transformers import GenerationConfig

    start = getattr(model.generation_config, "decoder_start_token_id", None)
    model.config.pad_token_id, model.config.eos_token_id = tokenizer.pad_token_id, tokenizer.eos_token_id
    model.generation_config = GenerationConfig(
        do_sample=False, pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
        bos_token_id=tokenizer.bos_token_id,
        decoder_start_token_id=getattr(model.config, "decoder_start_token_id", None) if start is None else start,
    )  # fmt: skip


def read_fuser_card(folder: Path) -> AdapterCard:
    """The card of a fuser adapter. Raises `AdapterError` for another kind or another rendering of the input."""
    card = read_card(folder)
    if card.kind != "fuser":
        raise AdapterError(f"{folder} is a {card.kind!r} adapter; a fuser adapter is needed here")
    if card.template != FUSION_TEMPLATE:
        raise AdapterError(
            f"{folder} was trained on template {card.template!r}, this version renders {FUSION_TEMPLATE!r}: "
            "retrain it, or use the version that made it"
        )
    return card


class LazyFuser:
    """The fuser of an adapter folder, loaded at its first use; a wrong folder or a missing base is told at once."""

    def __init__(self, folder: Path) -> None:
        """Raises `AdapterError` or `BaseModelError`."""
        card = read_fuser_card(folder)
        resolve_base(card.base, expected_hash=card.base_hash)
        self.folder, self.name = folder, fuser_name(card)
        self._loaded: LoadedFuser | None = None

    def fuse(self, requests: Sequence[FusionRequest]) -> list[str]:
        """Return one view text a request, all of them from one call of the model."""
        if self._loaded is None:
            self._loaded = LoadedFuser.load(self.folder)
        return self._loaded.fuse(requests)


def fuser_name(card: AdapterCard) -> str:
    """Base and digest."""
    return f"{card.base.rsplit('/', 1)[-1]}@{card.digest}"


class LoadedFuser:
    """A trained fuser: greedy generation from the shared rendering, one view a request, nothing checked yet."""

    def __init__(self, model: Any, tokenizer: Any, card: AdapterCard) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.card = card
        self.name = fuser_name(card)
        self.encoder_decoder = bool(model.config.is_encoder_decoder)
        align_token_ids(model.get_base_model() if hasattr(model, "get_base_model") else model, tokenizer)

    @classmethod
    def load(
        cls, folder: str | Path, *, base: str | Path | None = None, device: str | None = None, merge: bool = True
    ) -> LoadedFuser:
        """Load an adapter folder and verify it: kind, template, base content hash, adapter weights and probes.

        Raises `AdapterError` or `BaseModelError`.
        """
        import torch
        from peft import PeftModel
        from transformers import AutoTokenizer

        folder = Path(folder)
        card = read_fuser_card(folder)
        resolved = resolve_base(base or card.base, expected_hash=card.base_hash)
        model = PeftModel.from_pretrained(load_language_model(resolved.path), str(folder))
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        model = (model.merge_and_unload() if merge else model).to(device)
        loaded = cls(model, AutoTokenizer.from_pretrained(str(folder)), card)
        loaded.verify_probes(str(folder))
        return loaded

    def verify_probes(self, where: str) -> None:
        """Raise `AdapterError` unless the stored targets get the stored probabilities."""
        if not self.card.probes:
            raise AdapterError(f"{where}: roam.json holds no probes, so the adapter can't be verified; retrain it")
        for probe in self.card.probes:
            gap = abs(self.token_probability(probe.old, probe.new) - probe.probabilities["token"])
            if not gap <= PROBE_TOLERANCE:
                raise AdapterError(
                    f"{where}: a probe gets another probability than when it was saved (gap {gap:.3f}, allowed "
                    f"{PROBE_TOLERANCE}): the base or the tokenizer is not the one it was trained with"
                )

    def fuse(self, requests: Sequence[FusionRequest]) -> list[str]:
        """Return one view text a request."""
        return [view.text for view in self.generate([fusion_prompt(request) for request in requests])]

    def generate(self, prompts: Sequence[str], *, max_new_tokens: int = VIEW_TOKENS) -> list[GeneratedView]:
        """Greedy views in the order of the prompts; prompts of similar length share a batch."""
        import torch

        out = [GeneratedView("", False)] * len(prompts)
        encoded = [self.tokenizer(prompt)["input_ids"] for prompt in prompts]
        self.tokenizer.padding_side = "right" if self.encoder_decoder else "left"
        for chunk in length_batches([len(ids) + max_new_tokens for ids in encoded], BATCH_TOKENS):
            batch = self.tokenizer.pad({"input_ids": [encoded[index] for index in chunk]}, return_tensors="pt")
            batch = batch.to(next(self.model.parameters()).device)
            with torch.inference_mode():
                rows = self.model.generate(
                    input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], max_new_tokens=max_new_tokens
                )
            for index, row in zip(chunk, rows.tolist(), strict=True):
                out[index] = self._view(row[1:] if self.encoder_decoder else row[batch["input_ids"].shape[1] :])
        return out

    def _view(self, ids: list[int]) -> GeneratedView:
        ended = self.tokenizer.eos_token_id in ids
        text = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return GeneratedView(text.strip(), ended)

    def target_logits(self, prompt: str, target: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Logits at the target's tokens and EOS, shape (tokens, vocabulary), and the tokens themselves."""
        import torch

        device = next(self.model.parameters()).device
        ids = self.tokenizer(prompt)["input_ids"]
        if self.encoder_decoder:
            wanted = self.tokenizer(text_target=target, add_special_tokens=False)["input_ids"]
            wanted = [*wanted, self.tokenizer.eos_token_id]
        else:
            whole = [*self.tokenizer(f"{prompt} {target}")["input_ids"], self.tokenizer.eos_token_id]
            ids, wanted = whole[: len(ids)], whole[len(ids) :]
        with torch.inference_mode():
            if self.encoder_decoder:
                rows = self.model(
                    input_ids=torch.tensor([ids], device=device), labels=torch.tensor([wanted], device=device)
                ).logits[0]
            else:
                rows = self.model(input_ids=torch.tensor([[*ids, *wanted]], device=device)).logits[0, len(ids) - 1 : -1]
        return rows.float().cpu().numpy(), np.array(wanted, dtype=np.int64)

    def token_probability(self, prompt: str, target: str) -> float:
        """Geometric mean of the probabilities of the target's tokens and EOS."""
        logits, wanted = self.target_logits(prompt, target)
        shifted = logits - logits.max(axis=1, keepdims=True)
        log_probabilities = shifted[np.arange(len(wanted)), wanted] - np.log(np.exp(shifted).sum(axis=1))
        return float(np.exp(log_probabilities.mean()))
