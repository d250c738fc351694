"""Loading a base as a five-way classifier and wrapping it with LoRA.

Known traps, each guarded here: without `task_type="SEQ_CLS"` the head comes back random; default settings lose
DeBERTa's pooler and ModernBERT's head; a padding token equal to EOS pools the wrong token; DeBERTa overflows in fp16; a
head in 4 bits can't learn; a decoder reads two texts as one unless something stands between them.
"""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from typing import Any

from roam.adapters import read_card
from roam.bases import ResolvedBase, resolve_base
from roam.errors import AdapterError, TrainingError
from roam.pair_encoding import close_pairs
from roam.quantisation import HEADS, placement
from roam.relation_model import quiet_loading
from roam.relations import RELATIONS
from training.config import RelationConfig
from training.tokens import set_padding

LINEAR_NAMES = (
    "q", "k", "v", "o", "query", "key", "value", "dense",  # BERT, MPNet
    "query_proj", "key_proj", "value_proj",  # DeBERTa
    "Wqkv", "Wo", "Wi",  # ModernBERT
    "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",  # decoders
)  # fmt: skip
FP16_OVERFLOWS = ("deberta", "t5", "qwen", "gemma")
"""Families whose activations leave the range of fp16; the last three were trained in bf16."""
LAYER = re.compile(r"(?:^|\.)(?:layer|layers|h|block)\.(\d+)\.")


def load_classifier(config: RelationConfig, *, saved: Path | None = None) -> tuple[Any, Any, ResolvedBase]:
    """Return (PEFT model, tokenizer, base); with `saved`, the weights that PEFT saved there instead of new ones.

    Raises `BaseModelError` or `TrainingError`.
    """
    import torch
    from peft import LoraConfig, PeftModel, TaskType, get_peft_model, prepare_model_for_kbit_training
    from peft.utils.constants import DUMMY_TARGET_MODULES
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    base = resolve_base(config.base)
    if config.initial_adapter:
        check_initial(config.initial_adapter, base, "relation", quantisation_of(config))
    tokenizer = AutoTokenizer.from_pretrained(base.path)
    if config.max_length > tokenizer.model_max_length:
        raise TrainingError(f"max_length is {config.max_length}, {base.name} takes {tokenizer.model_max_length} tokens")
    tokenizer.padding_side = "right"  # as the runtime pads; on the left, encoders would pool a padding token
    torch.manual_seed(config.seed)  # the new head's initial weights
    names = [relation.value for relation in RELATIONS]
    options = loading_options(config)
    try:
        with quiet_loading():
            model, info = AutoModelForSequenceClassification.from_pretrained(
                base.path, num_labels=len(names), id2label=dict(enumerate(names)),
                label2id={name: index for index, name in enumerate(names)}, dtype=torch.float32,
                output_loading_info=True, ignore_mismatched_sizes=True, **options,
            )  # fmt: skip
    except ValueError as error:
        if config.attention == "auto":
            raise
        reason = str(error).partition(". ")[0]
        raise TrainingError(f"attention={config.attention}: {reason}; use attention=eager or attention=auto") from error
    _check_mismatched(model, info["mismatched_keys"])
    if is_decoder(tokenizer):
        set_padding(tokenizer, model.get_input_embeddings().num_embeddings)
        close_pairs(tokenizer)
        model.config.pad_token_id = tokenizer.pad_token_id
    _check_padding(model, tokenizer)
    if config.dropout is not None:
        _set_dropout(model, config.dropout)
    if config.quantisation != "none":
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    if config.gradient_checkpointing:
        model.enable_input_require_grads()  # frozen embeddings would cut the graph that checkpoints are recomputed in
    start = saved or config.initial_adapter
    if start:
        peft = PeftModel.from_pretrained(model, str(start), is_trainable=True)
    else:
        peft = get_peft_model(
            model,
            LoraConfig(
                task_type=TaskType.SEQ_CLS, r=config.lora_rank, lora_alpha=config.lora_alpha,
                lora_dropout=config.lora_dropout,
                target_modules=DUMMY_TARGET_MODULES if config.adapt == "head" else lora_targets(model, config),
                modules_to_save=head_modules(model, info["missing_keys"], config),
            ),
        )  # fmt: skip
    _check_head(peft)
    return peft, tokenizer, base


def quantisation_of(config: RelationConfig) -> str:
    """As an adapter's card names it: empty for plain weights."""
    return "" if config.quantisation == "none" else config.quantisation


def loading_options(config: RelationConfig) -> dict[str, Any]:
    """What `from_pretrained` is told of quantisation, device and attention.

    Raises `TrainingError` for an attention that this machine has not.
    """
    import torch

    gpu = torch.cuda.is_available() and config.device == "auto"
    # Each process has its own GPU; bitsandbytes places weights when it loads them.
    options = placement(quantisation_of(config), f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if gpu else "cpu")
    if config.attention == "flash_attention_2" and (not gpu or importlib.util.find_spec("flash_attn") is None):
        raise TrainingError(
            "attention=flash_attention_2 needs an NVIDIA GPU and the package flash-attn; use attention=sdpa"
        )
    if config.attention != "auto":
        options["attn_implementation"] = config.attention
    return options


def is_decoder(tokenizer: Any) -> bool:
    """Whether the tokenizer adds nothing around a pair: decoders' do not, encoders' put in separators."""
    return not tokenizer.backend_tokenizer.num_special_tokens_to_add(is_pair=True)


def check_initial(folder: str, base: ResolvedBase, kind: str, quantisation: str = "") -> None:
    """Raise `AdapterError` for an adapter to go on from that is of another kind, base, quantisation or label order.

    PEFT loads all of these without a word.
    """
    card = read_card(Path(folder))
    if card.kind != kind:
        raise AdapterError(f"initial_adapter {folder} is a {card.kind!r} adapter; give a {kind} adapter")
    if card.base_hash != base.content_hash:
        raise AdapterError(
            f"initial_adapter {folder} was trained on {card.base} ({card.base_hash[:16]}), base is {base.name} "
            f"({base.content_hash[:16]}); set base={card.base}"
        )
    if card.quantisation != quantisation:
        raise AdapterError(
            f"initial_adapter {folder} was trained with quantisation={card.quantisation or 'none'}; set the same here"
        )
    names = tuple(relation.value for relation in RELATIONS)
    if kind == "relation" and card.labels != names:
        raise AdapterError(f"initial_adapter {folder} has labels in the order {card.labels}; training needs {names}")


def lora_targets(model: Any, config: RelationConfig) -> list[str]:
    """Full names of the linear layers that get LoRA: inside encoder layers, never in the head."""
    import torch

    wanted = None if config.lora_targets == "auto" else re.compile(config.lora_targets)
    names = []
    for name, module in model.named_modules():
        layer = LAYER.search(name)
        if not isinstance(module, torch.nn.Linear) or layer is None or int(layer[1]) < config.lora_first_layer:
            continue
        if wanted.fullmatch(name) if wanted else name.rsplit(".", 1)[-1] in LINEAR_NAMES:
            names.append(name)
    if not names:
        raise TrainingError(f"lora_targets={config.lora_targets!r} matches no linear layer of {type(model).__name__}")
    return names


def head_modules(model: Any, missing: Any, config: RelationConfig) -> list[str]:
    """Modules that are trained and saved whole: what came newly initialised, the head, and a pooler.

    Sentence encoders carry a pooler that their mean pooling never used; left frozen, it hides the first token from the
    head and training hardly starts.
    """
    if config.head_modules != ("auto",):
        present = {part for name, _ in model.named_modules() for part in (name, name.rsplit(".", 1)[-1])}
        absent = sorted(set(config.head_modules) - present)
        if absent:
            raise TrainingError(
                f"head_modules: {type(model).__name__} has no {', '.join(absent)}; its parts are "
                f"{', '.join(name for name, _ in model.named_children())}"
            )
        return list(config.head_modules)
    found = set()
    for key in missing:
        parts = key.split(".")
        # A newly initialised pooler sits inside the encoder module (bert.pooler.dense.weight); the head does not.
        found.add(parts[0] if parts[0] != model.base_model_prefix else ".".join(parts[:2]))
    found |= {name for name in ("classifier", "score", "head") if hasattr(model, name)}
    found |= {
        name
        for name, module in model.named_modules()
        if name.endswith("pooler") and any(True for _ in module.parameters())
    }
    return sorted(found)


def _check_mismatched(model: Any, mismatched: Any) -> None:
    """A base that was a classifier of other labels (NLI, say) may bring another head; all else must fit its config."""
    keys = [str(entry[0] if isinstance(entry, tuple) else entry) for entry in mismatched]
    inner = [key for key in keys if key.split(".")[0] not in HEADS]
    if inner:
        raise TrainingError(f"{type(model).__name__}: weights of another shape than its config says: {inner[:3]}")


def _set_dropout(model: Any, rate: float) -> None:
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = rate


def _check_padding(model: Any, tokenizer: Any) -> None:
    if tokenizer.pad_token_id is None or (tokenizer.pad_token_id == tokenizer.eos_token_id and not tokenizer.cls_token):
        raise TrainingError(
            f"padding token {tokenizer.pad_token!r} is missing or equals EOS: the classifier would pool the wrong "
            "token; give the tokenizer a padding token of its own"
        )
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id


def _check_head(peft: Any) -> None:
    """Every declared head module is wrapped and learns (a wrapper that ignores it leaves the head random)."""
    from peft.utils import ModulesToSaveWrapper

    wrapped = {name.rsplit(".", 1)[-1] for name, m in peft.named_modules() if isinstance(m, ModulesToSaveWrapper)}
    present = {name.rsplit(".", 1)[-1] for name, _ in peft.named_modules()}
    # PEFT adds its own guesses of head names; those that this architecture has not are no loss.
    declared = {name.rsplit(".", 1)[-1] for name in peft.peft_config["default"].modules_to_save or ()} & present
    frozen = [
        name
        for name, parameter in peft.named_parameters()
        if ".modules_to_save." in name and not parameter.requires_grad
    ]
    if not declared or declared - wrapped or frozen:
        raise TrainingError(
            f"head not trainable: declared {sorted(declared)}, wrapped {sorted(wrapped)}, frozen {frozen}"
        )


def choose_precision(config: RelationConfig, model_type: str) -> tuple[str, str]:
    """Return (precision, reason). Auto takes bf16 only where the hardware computes it; elsewhere it is far slower."""
    import torch

    gpu = torch.cuda.is_available() and config.device == "auto"
    if config.precision == "fp16" and any(name in model_type for name in FP16_OVERFLOWS):
        return ("bf16" if gpu else "fp32"), f"{model_type} overflows in fp16"
    if config.precision == "fp16" and not gpu:
        return "fp32", "fp16 needs a GPU"
    if config.precision != "auto":
        return config.precision, "as configured"
    if gpu:
        return ("bf16", "GPU with bf16") if torch.cuda.is_bf16_supported() else ("fp32", "GPU without bf16")
    return ("bf16", "CPU computes bf16") if cpu_has_bf16() else ("fp32", "CPU does not compute bf16")


def cpu_has_bf16() -> bool:
    """True when the CPU has bf16 arithmetic (AVX512-BF16, AMX or Arm BF16)."""
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return False
    words = set(info.read_text(encoding="utf-8", errors="replace").split())
    return bool(words & {"avx512_bf16", "amx_bf16", "bf16"})
