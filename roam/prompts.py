"""What a fuser's model reads and how long its views may get: shared by training and the runtime."""

from __future__ import annotations

from typing import Final

from roam.errors import InputError
from roam.records import FusionRequest
from roam.relations import Relation

FUSION_TEMPLATE: Final = "fusion/1"
"""Version of `fusion_prompt`; an adapter trained on another one is refused."""

VIEW_TOKENS: Final = 192
"""Longest view a fuser may generate, in tokens of its own tokenizer; it should end earlier by itself."""


def fusion_prompt(request: FusionRequest) -> str:
    """The model's input for one view (paper equation 9): relation, then the timed texts in the order of the request.

    Texts are put on one line each, so that no text can pass for a further input. Items are numbered because some
    tokenizers (T5) drop line breaks. A decoder's view follows after one space. Raises `InputError` for a request that
    fuses nothing.
    """
    if request.relation is Relation.IND or not request.inputs:
        raise InputError(
            f"a request of relation {request.relation} with {len(request.inputs)} inputs fuses nothing; give at least "
            "one input and EQV, OSN, NSO or CON"
        )
    lines = [f"Fuse into one view. Relation: {request.relation}."]
    lines += [
        f"{number} ({' '.join(item.time.split()) if item.time else 'no date'}): {' '.join(item.text.split())}"
        for number, item in enumerate(request.inputs, start=1)
    ]
    return "\n".join([*lines, "View:"])
