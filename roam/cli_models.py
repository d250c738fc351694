"""Commands that need models and no store: `relate`, `pull`; and `doctor`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from roam.cli_doctor import doctor, needed_bases
from roam.cli_render import probabilities_text, to_json

if TYPE_CHECKING:
    from roam.cli import ManagerLoader


def relate(args: argparse.Namespace, load_manager: ManagerLoader) -> int:
    """Print the relation of NEW to OLD with the probabilities of all five."""
    from roam.policy import count_relation
    from roam.records import Pair
    from roam.relations import RELATIONS
    from roam.validation import clean_text

    pair = Pair(clean_text(args.old, "OLD"), clean_text(args.new, "NEW"))
    model = load_manager().relation_model
    row = model.predict_proba([pair])[0]
    probabilities = {relation: float(value) for relation, value in zip(RELATIONS, row, strict=True)}
    relation, raw = count_relation(probabilities, model.thresholds)
    if args.json:
        document = {
            "relation": relation, "argmax": raw, "probabilities": probabilities, "old": pair.old, "new": pair.new,
            "model": model.digest,
        }  # fmt: skip
        print(to_json(document))
        return 0
    doubt = "" if relation is raw else f" ({raw} is likeliest, but below its threshold of {model.thresholds[raw]:.2f})"
    print(f"{relation}{doubt}\n{probabilities_text(probabilities)}")
    return 0


def pull(args: argparse.Namespace, load_manager: ManagerLoader) -> int:
    """Fetch base weights: the named ones, else those that the manager and the search need, and load the manager.

    Loading it builds its ONNX model, where that is what will run.
    """
    from roam.bases import ensure_base

    found = [ensure_base(name) for name in list(args.bases) or needed_bases(args.manager)]
    model = None if args.bases else load_manager().relation_model
    if args.json:
        bases = [{"base": base.name, "path": str(base.path), "content_hash": base.content_hash} for base in found]
        print(to_json({"bases": bases, "model": model.digest if model else None}))
    else:
        for base in found:
            print(f"{base.name}  {base.path}  sha256 {base.content_hash[:16]}")
        if model:
            print(f"relation model {model.digest} is ready")
    return 0


COMMANDS: dict[str, Callable[[argparse.Namespace, ManagerLoader], int]] = {
    "relate": relate, "pull": pull, "doctor": doctor,
}  # fmt: skip
