"""Tiny random bases built in code, one for each architecture that recipes name."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from data.pairs import LabelledPair
from roam.relations import RELATIONS, Relation

SUBJECTS = ("Ana", "Bela", "Chen", "Dora", "Emil", "Fay", "Gus", "Hana")
THINGS = ("tea", "coffee", "rice", "bread", "fish", "milk", "jazz", "chess", "rugby", "trains", "dogs", "cats")
WORDS = ("likes", "hates", "green", "strong", "the", "a", "no", "very", *THINGS, *SUBJECTS)


def vocabulary() -> list[str]:
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(word.lower() for word in WORDS)]


def save_tokenizer(folder: Path, *, mpnet: bool = False) -> None:
    """A word-level tokenizer that lays a pair out as [CLS] a [SEP] b [SEP]."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    table = {word: index for index, word in enumerate(vocabulary())}
    raw = Tokenizer(models.WordLevel(table, unk_token="[UNK]"))
    raw.normalizer = normalizers.Lowercase()
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = ["input_ids", "attention_mask"] if mpnet else ["input_ids", "token_type_ids", "attention_mask"]
    PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_input_names=names,
    ).save_pretrained(str(folder))  # fmt: skip


QWEN_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_pad|>")


def save_qwen_tokenizer(folder: Path, *, base_model: bool = False) -> int:
    """Qwen's own tokenizer class over single bytes; a base model's pads with EOS. Returns the vocabulary's size."""
    from tokenizers import pre_tokenizers
    from transformers import Qwen2Tokenizer

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    table = {token: index for index, token in enumerate([*letters, *QWEN_SPECIAL])}
    end = "<|endoftext|>" if base_model else "<|im_end|>"
    Qwen2Tokenizer(
        vocab=table, merges=[], eos_token=end, pad_token="<|endoftext|>", unk_token=None,
        additional_special_tokens=list(QWEN_SPECIAL),
    ).save_pretrained(str(folder))  # fmt: skip
    return len(table)


def config_of(architecture: str) -> Any:
    from transformers import AutoConfig

    common = {"vocab_size": len(vocabulary()), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
              "intermediate_size": 64, "max_position_embeddings": 64, "pad_token_id": 0}  # fmt: skip
    extra: dict[str, Any] = {}
    if architecture == "deberta-v2":
        extra = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16,
                 "norm_rel_ebd": "layer_norm", "type_vocab_size": 0, "pooler_hidden_size": 32}  # fmt: skip
    if architecture == "modernbert":
        extra = {"cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3, "local_attention": 16}
    if architecture == "qwen3":
        extra = {"vocab_size": 260, "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 256,
                 "tie_word_embeddings": True, "pad_token_id": None}  # fmt: skip
    return AutoConfig.for_model(architecture, **common | extra)


def save_base(folder: Path, architecture: str = "bert", seed: int = 0) -> Path:
    """Random weights of `architecture` as a base folder: encoder only, no head."""
    import torch
    from transformers import AutoModel

    torch.manual_seed(seed)
    folder.mkdir(parents=True, exist_ok=True)
    AutoModel.from_config(config_of(architecture)).save_pretrained(str(folder))
    if architecture == "qwen3":
        save_qwen_tokenizer(folder)
        return folder
    save_tokenizer(folder, mpnet=architecture == "mpnet")
    return folder


def toy_pairs(count: int, seed: int, prefix: str) -> list[LabelledPair]:
    """Pairs whose label a tiny model can learn from single words."""
    rng = random.Random(seed)
    out = []
    for number in range(count):
        relation = RELATIONS[number % len(RELATIONS)]
        who, thing, other = rng.choice(SUBJECTS), *rng.sample(THINGS, 2)
        plain = f"{who} likes {thing}"
        old, new = {
            Relation.IND: (plain, f"{who} likes {other}"),
            Relation.EQV: (plain, f"{who} likes the {thing}"),
            Relation.OSN: (plain, f"{who} likes very strong {thing}"),
            Relation.NSO: (f"{who} likes very strong {thing}", plain),
            Relation.CON: (plain, f"{who} hates {thing}"),
        }[relation]
        out.append(LabelledPair(f"{prefix}{number}", old, new, relation, f"{prefix}{number // 5}"))
    return out
