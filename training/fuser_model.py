"""Loading a base as a fuser to train: a padding token of its own, LoRA around it.

Known traps, each guarded here: a padding token equal to EOS is masked in the loss, so EOS is never learned and
generation runs on; a tokenizer that appends EOS to the prompt ends the view before it begins.
"""

from __future__ import annotations

from typing import Any

from roam.bases import ResolvedBase, resolve_base
from roam.errors import TrainingError
from roam.fusion.model import align_token_ids, load_language_model
from training.fuser_config import FuserConfig
from training.models import check_initial

PAD_TOKEN = "<|pad|>"


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
