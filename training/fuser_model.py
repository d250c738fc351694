"""Loading a base as a fuser to train: a padding token of its own, LoRA around it.

Known traps, each guarded here: a padding token equal to EOS is masked in the loss, so EOS is never learned and
generation runs on; a tokenizer that appends EOS to the prompt ends the view before it begins.
"""

from __future__ import annotations

import re
from typing import Any, Final

from roam.bases import ResolvedBase, resolve_base
from roam.errors import TrainingError
from roam.fusion.model import align_token_ids, load_language_model
from training.fuser_config import FuserConfig
from training.models import check_initial
from training.tokens import check_prompt_is_open, set_padding

_LAYER: Final = re.compile(r"\.(?:layers|block|h)\.(\d+)\.")


def lora_modules(model: Any, config: FuserConfig) -> str | list[str]:
    """The modules that get LoRA: what the recipe names, or of it those in the upper `lora_depth` of the layers."""
    import torch

    if config.lora_depth == 1:
        return config.lora_targets
    wanted = None if config.lora_targets == "all-linear" else re.compile(config.lora_targets)
    first = round(model.config.num_hidden_layers * (1 - config.lora_depth))
    found = [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
        and (layer := _LAYER.search(name))
        and int(layer[1]) >= first
        and (wanted is None or wanted.fullmatch(name))
    ]
    if not found:
        raise TrainingError(
            f"lora_depth={config.lora_depth} with lora_targets={config.lora_targets!r} matches no linear layer of "
            f"{type(model).__name__}; raise lora_depth or name other targets"
        )
    return found


def check_targets(model: Any, targets: str) -> None:
    """Raise `TrainingError` for a pattern that no linear layer's name matches."""
    import torch

    if targets != "all-linear" and not any(
        isinstance(module, torch.nn.Linear) and re.fullmatch(targets, name) for name, module in model.named_modules()
    ):
        raise TrainingError(
            f"lora_targets={targets!r} matches no linear layer of {type(model).__name__}; give a regular expression "
            "for whole names, such as .*(q|v)_proj, or all-linear"
        )


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
        check_targets(model, config.lora_targets)
        task = TaskType.SEQ_2_SEQ_LM if model.config.is_encoder_decoder else TaskType.CAUSAL_LM
        peft = get_peft_model(
            model,
            LoraConfig(
                task_type=task, r=config.lora_rank, lora_alpha=config.lora_alpha, lora_dropout=config.lora_dropout,
                target_modules=lora_modules(model, config),
            ),
        )  # fmt: skip
    # The folder a base was found in says nothing on another machine; its name does.
    peft.peft_config["default"].base_model_name_or_path = base.name
    return peft, tokenizer, base
