"""What a decoder's tokenizer needs before a model is trained on it: a padding token that is not EOS."""

from __future__ import annotations

from typing import Any

from roam.errors import TrainingError

PAD_TOKEN = "<|pad|>"


def set_padding(tokenizer: Any, rows: int, wanted: str | None = None) -> None:
    """Give the tokenizer a padding token other than EOS.

    It is `wanted`, or the tokenizer's own, or a special token that texts never hold (padding is masked, so its
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
    """Raise `TrainingError` for a tokenizer that ends every text, prompts too, with EOS."""
    if tokenizer("View:")["input_ids"][-1] == tokenizer.eos_token_id:
        raise TrainingError("the base's tokenizer appends EOS to every text; set add_eos_token to false in its config")
