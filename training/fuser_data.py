"""Fusion examples as training data: the dev split, the checks, and the two forms that the trainers read."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data.fusion import FusionExample, read_fusion
from data.fusion_vary import vary
from data.held_out import refuse_test_rows
from eval.fusion_report import request_of
from roam.errors import DataError, TrainingError
from roam.prompts import VIEW_TOKENS, fusion_prompt
from training.fuser_config import FuserConfig

LOSSY_SHARE = 0.01
"""Share of targets that the tokenizer may fail to write before a run is refused: no fuser could get them right."""


def in_dev(identity: str, share: float) -> bool:
    """True for about `share` of all ids; stays the same when examples are added or reordered."""
    return int(hashlib.sha256(identity.encode()).hexdigest()[:8], 16) / 16**8 < share


def read_split(config: FuserConfig) -> tuple[list[FusionExample], list[FusionExample]]:
    """Train and dev examples.

    Raises `DataError` for missing or empty parts, repeated ids and dev inputs in train, `InputError` for the test set.
    """
    for path in (config.train, *config.more_train):
        if not Path(path).is_file():
            raise DataError(f"fusion file {path!r} does not exist; set train=FILE or more_train=[FILE]")
    written = read_fusion(config.train)
    refuse_test_rows(config.train, written)
    dev = [example for example in written if in_dev(example.id, config.dev_share)]
    train = [example for example in written if not in_dev(example.id, config.dev_share)]
    train += variants_of(train, config)
    train += further_examples(config, len(train))
    repeated = [name for name, count in Counter(example.id for example in (*train, *dev)).items() if count > 1]
    if repeated:
        raise DataError(f"{len(repeated)} ids occur more than once (for example {repeated[:3]}); make ids unique")
    if not train or not dev:
        raise DataError(f"{len(train)} examples for training and {len(dev)} for dev; give more or change dev_share")
    held_out = {prompt_of(example) for example in dev}
    leaked = [example.id for example in train if prompt_of(example) in held_out]
    if leaked:
        raise DataError(f"{len(leaked)} training examples repeat dev inputs (for example {leaked[:3]}); remove them")
    return subset(train, config.max_train_examples, config.seed), subset(dev, config.max_dev_examples, config.seed)


def variants_of(examples: Sequence[FusionExample], config: FuserConfig) -> list[FusionExample]:
    """`config.variants` seeded variants of each example; of training examples only, so that dev stays apart."""
    rng = random.Random(config.seed)
    return [
        vary(example, rng, f"{example.id}-variant-{number}")
        for number in range(1, config.variants + 1)
        for example in examples
    ]


def further_examples(config: FuserConfig, written: int) -> list[FusionExample]:
    """The examples of `more_train`, all or a seeded sample that makes up `more_share` beside `written` others."""
    files = [read_fusion(path) for path in config.more_train]
    for path, examples in zip(config.more_train, files, strict=True):
        refuse_test_rows(path, examples)
    if not config.more_share:
        return [example for examples in files for example in examples]
    total = written / (1 - sum(config.more_share))
    out: list[FusionExample] = []
    for path, examples, share in zip(config.more_train, files, config.more_share, strict=True):
        count = round(share * total)
        if count > len(examples):
            raise DataError(
                f"{path} has {len(examples)} examples, share {share} needs {count}; lower more_share or add examples"
            )
        out += subset(examples, count, config.seed)
    return out


def subset(examples: Sequence[FusionExample], limit: int | None, seed: int) -> list[FusionExample]:
    """A seeded sample in file order."""
    if limit is None or limit >= len(examples):
        return list(examples)
    return [examples[index] for index in sorted(random.Random(seed).sample(range(len(examples)), limit))]


def prompt_of(example: FusionExample) -> str:
    return fusion_prompt(request_of(example))


def decoder_dataset(examples: Sequence[FusionExample]) -> Any:
    """Prompt/completion columns; TRL appends EOS and keeps the loss to the completion."""
    from datasets import Dataset

    return Dataset.from_dict(
        {"prompt": [prompt_of(example) for example in examples], "completion": [f" {e.target}" for e in examples]}
    )


def encoder_decoder_dataset(examples: Sequence[FusionExample], tokenizer: Any) -> Any:
    """Token ids of inputs and of targets, each target ending with EOS."""
    from datasets import Dataset

    inputs = tokenizer([prompt_of(example) for example in examples])
    targets = [with_eos(ids, tokenizer) for ids in tokenizer(text_target=[e.target for e in examples])["input_ids"]]
    return Dataset.from_dict(
        {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"], "labels": targets}
    )


def with_eos(ids: Sequence[int], tokenizer: Any) -> list[int]:
    return list(ids) if ids and ids[-1] == tokenizer.eos_token_id else [*ids, tokenizer.eos_token_id]


def check_fits(examples: Sequence[FusionExample], tokenizer: Any, config: FuserConfig) -> None:
    """Raise `DataError` for examples that are too long, `TrainingError` for a tokenizer that can't write the targets.

    Cutting an example would cut its EOS, and the model would learn to go on.
    """
    prompts = [len(ids) for ids in tokenizer([prompt_of(example) for example in examples])["input_ids"]]
    encoded = tokenizer([example.target for example in examples], add_special_tokens=False)["input_ids"]
    totals = [prompt + len(view) + 1 for prompt, view in zip(prompts, encoded, strict=True)]
    long = [example.id for example, total in zip(examples, totals, strict=True) if total > config.max_length]
    if long:
        raise DataError(
            f"{len(long)} examples are longer than max_length={config.max_length} tokens (up to {max(totals)}; for "
            f"example {long[:3]}); raise max_length"
        )
    views = max(len(view) + 1 for view in encoded)
    if views > VIEW_TOKENS:
        raise DataError(f"a target has {views} tokens, the longest view is {VIEW_TOKENS}; shorten it")
    decoded = tokenizer.batch_decode(encoded, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    lossy = [
        example.id
        for example, text in zip(examples, decoded, strict=True)
        if "".join(text.split()) != "".join(example.target.split())
    ]
    if len(lossy) > LOSSY_SHARE * len(examples):
        raise TrainingError(
            f"the base's tokenizer can't write {len(lossy)} of {len(examples)} targets (for example {lossy[:3]}: "
            f"{decoded[[e.id for e in examples].index(lossy[0])]!r}); choose another base"
        )
