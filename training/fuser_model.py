"""Loading a base as a fuser, wrapping it with LoRA, and generating views with a trained adapter.

Known traps, each guarded here: a padding token equal to EOS is masked in the loss, so EOS is never learned and
generation runs on; a tokenizer that appends EOS to the prompt ends the view before it begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roam.adapters import PROBE_TOLERANCE, AdapterCard, read_card
from roam.bases import ResolvedBase, resolve_base
from roam.errors import AdapterError, TrainingError
from roam.prompts import FUSION_TEMPLATE, VIEW_TOKENS, fusion_prompt
from roam.records import FusionRequest
from roam.relation_model import length_batches, quiet_loading
from training.fuser_config import FuserConfig
from training.models import check_initial

BATCH_TOKENS = 4096
PAD_TOKEN = "<|pad|>"


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
        return loader.from_pretrained(path, dtype=torch.float32)


def load_trainable(config: FuserConfig) -> tuple[Any, Any, ResolvedBase]:
    """Return (PEFT model, tokenizer, base). Raises `BaseModelError` or `TrainingError`."""
    import torch
    from peft import LoraConfig, PeftModel, TaskType, get_peft_model
    from transformers import AutoTokenizer

    base = resolve_base(config.base)
    if config.initial_adapter:
        check_initial(config.initial_adapter, base, "fuser")
    tokenizer = AutoTokenizer.from_pretrained(base.path)
    model = load_language_model(base.path)
    set_padding(tokenizer, model.get_input_embeddings().num_embeddings, config.pad_token)
    if not model.config.is_encoder_decoder:
        check_prompt_is_open(tokenizer)
    align_token_ids(model, tokenizer)
    torch.manual_seed(config.seed)  # LoRA's initial weights
    if config.initial_adapter:
        peft = PeftModel.from_pretrained(model, config.initial_adapter, is_trainable=True)
    else:
        task = TaskType.SEQ_2_SEQ_LM if model.config.is_encoder_decoder else TaskType.CAUSAL_LM
        peft = get_peft_model(
            model,
            LoraConfig(
                task_type=task, r=config.lora_rank, lora_alpha=config.lora_alpha, lora_dropout=config.lora_dropout,
                target_modules=config.lora_targets,
            ),
        )  # fmt: skip
    # The folder a base was found in says nothing on another machine; its name does.
    peft.peft_config["default"].base_model_name_or_path = base.name
    return peft, tokenizer, base


def set_padding(tokenizer: Any, rows: int, wanted: str | None = None) -> None:
    """Give the tokenizer a padding token other than EOS.

    It is `wanted`, or the tokenizer's own, or a special token that views never hold (padding is masked, so its
    embedding does not matter), or a new one if the embedding matrix (`rows`) has room. Raises `TrainingError`.
    """
    if tokenizer.eos_token_id is None:
        raise TrainingError("the base's tokenizer has no EOS token, so views could not end; choose another base")
    if wanted is not None:
        if wanted not in tokenizer.get_vocab() or wanted == tokenizer.eos_token:
            raise TrainingError(
                f"pad_token={wanted!r} is not in the vocabulary or is EOS ({tokenizer.eos_token!r}); name another token"
            )
        tokenizer.pad_token = wanted
    if tokenizer.pad_token_id is not None and tokenizer.pad_token_id != tokenizer.eos_token_id:
        return
    taken = {tokenizer.eos_token_id, tokenizer.bos_token_id}
    special = [
        (("pad" not in text.content.lower(), "reserved" not in text.content.lower(), index), text.content)
        for index, text in tokenizer.added_tokens_decoder.items()
        if text.special and index not in taken
    ]
    if special:
        tokenizer.pad_token = min(special)[1]
    elif len(tokenizer) < rows:
        tokenizer.add_special_tokens({"pad_token": PAD_TOKEN})
    else:
        raise TrainingError(
            f"the base's padding token {tokenizer.pad_token!r} is missing or equals EOS, no special token is free and "
            "its embeddings have no row for a new one: EOS would be masked and never learned; set pad_token=TOKEN"
        )


def check_prompt_is_open(tokenizer: Any) -> None:
    if tokenizer("View:")["input_ids"][-1] == tokenizer.eos_token_id:
        raise TrainingError("the base's tokenizer appends EOS to every text; set add_eos_token to false in its config")


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


class LoadedFuser:
    """A trained fuser: greedy generation from the shared rendering, one view a request, nothing checked yet."""

    def __init__(self, model: Any, tokenizer: Any, card: AdapterCard) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.card = card
        self.name = f"{card.base.rsplit('/', 1)[-1]}@{card.digest}"
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
        card = read_card(folder)
        if card.kind != "fuser":
            raise AdapterError(f"{folder} is a {card.kind!r} adapter; a fuser adapter is needed here")
        if card.template != FUSION_TEMPLATE:
            raise AdapterError(
                f"{folder} was trained on template {card.template!r}, this version renders {FUSION_TEMPLATE!r}: "
                "retrain it, or use the version that made it"
            )
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
