"""Tiny random generators built in code: decoders like SmolLM2 (padding equal to EOS) and Qwen3, and a T5."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from data.fusion import FusionExample
from training.fuser_data import prompt_of


def example_rows(path: Path, count: int) -> list[dict[str, Any]]:
    """The shortest examples of a fusion file."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return sorted(rows, key=lambda row: (sum(len(item["text"]) for item in row["inputs"]), row["id"]))[:count]


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def save_tokenizer(folder: Path, words: Iterable[str], *, t5: bool, free_special: bool = True) -> int:
    """A tokenizer of whole words that keeps spaces; the decoder's pads with EOS. Returns the vocabulary's size."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "</s>", "<unk>"] if t5 else ["<eos>", "<unk>"]
    table = {word: index for index, word in enumerate([*special, *sorted(set(words))])}
    raw = Tokenizer(models.WordLevel(table, unk_token="<unk>"))
    raw.normalizer = normalizers.Replace("\n", " ")
    raw.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    raw.decoder = decoders.Metaspace(prepend_scheme="always")
    if t5:
        raw.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    names = {"pad_token": "<pad>", "eos_token": "</s>"} if t5 else {"pad_token": "<eos>", "eos_token": "<eos>"}
    if t5 or free_special:
        names["unk_token"] = "<unk>"
    PreTrainedTokenizerFast(tokenizer_object=raw, **names).save_pretrained(str(folder))
    return len(table)


def save_fuser_base(
    folder: Path, examples: Iterable[FusionExample], *, t5: bool = False, free_special: bool = True,
    spare_rows: int = 0, qwen: bool = False,
) -> Path:  # fmt: skip
    """Random weights and a vocabulary of the examples' words as a base folder."""
    import torch
    from transformers import (
        LlamaConfig,
        LlamaForCausalLM,
        Qwen3Config,
        Qwen3ForCausalLM,
        T5Config,
        T5ForConditionalGeneration,
    )

    texts = [text for example in examples for text in (prompt_of(example), example.target)]
    words = [f"\u2581{word}" for text in texts for word in text.split()]
    size = save_tokenizer(folder, words, t5=t5, free_special=free_special) + spare_rows
    torch.manual_seed(0)
    if t5:
        config = T5Config(
            vocab_size=size, d_model=64, d_kv=16, d_ff=128, num_layers=1, num_decoder_layers=1, num_heads=4,
            feed_forward_proj="gated-gelu", tie_word_embeddings=False, pad_token_id=0, eos_token_id=1,
            decoder_start_token_id=0, dropout_rate=0.0,
        )  # fmt: skip
        T5ForConditionalGeneration(config).save_pretrained(str(folder))
    elif qwen:
        shape = Qwen3Config(
            vocab_size=size, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, max_position_embeddings=256, tie_word_embeddings=True,
            bos_token_id=None, eos_token_id=0,
        )  # fmt: skip
        Qwen3ForCausalLM(shape).save_pretrained(str(folder))
    else:
        decoder = LlamaConfig(
            vocab_size=size, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=True, initializer_range=0.2,
            bos_token_id=None, eos_token_id=0,  # no pad_token_id: it would zero the row of EOS
        )  # fmt: skip
        LlamaForCausalLM(decoder).save_pretrained(str(folder))
    return folder
