"""Average the weights of adapters: `python -m training.average ADAPTER ADAPTER ... --out FOLDER`.

The adapters must be of one base and one shape, and should have gone on from each other's weights: only then do their
matrices lie in one basin and the average answers better than its parts (model soups, Wortsman et al. 2022). The average
is calibrated on dev anew, as its margins are not those of any part.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from data.pairs import LabelledPair, file_sha256
from eval.provenance import versions
from roam.adapters import CARD, WEIGHTS, AdapterCard, read_card, weights_hash, write_card
from roam.arguments import ArgumentParser
from roam.errors import AdapterError, ConfigError, RoamError
from roam.relation_model import TorchRelationModel
from training.card import write_model_card
from training.relation import read_split
from training.saving import calibrate, trained_on


def averaged(folders: Sequence[Path]) -> dict[str, Any]:
    """Mean of each tensor over the adapters; `AdapterError` when they do not have the same tensors."""
    import torch
    from safetensors.torch import load_file

    parts = [load_file(folder / WEIGHTS) for folder in folders]
    for folder, part in zip(folders[1:], parts[1:], strict=True):
        odd = {name for name in parts[0].keys() | part.keys()
               if name not in part or name not in parts[0] or part[name].shape != parts[0][name].shape}  # fmt: skip
        if odd:
            raise AdapterError(
                f"{folders[0]} and {folder} differ in {len(odd)} tensors (such as {min(odd)}): only adapters of one "
                "recipe (base, rank, layers) can be averaged"
            )
    return {name: torch.stack([part[name].double() for part in parts]).mean(0).to(parts[0][name].dtype)
            for name in parts[0]}  # fmt: skip


def one_kind(folders: Sequence[Path]) -> list[AdapterCard]:
    """The adapters' cards; `AdapterError` unless all are relation adapters of the same base and reading."""
    cards = [read_card(folder) for folder in folders]
    for name in ("kind", "base_hash", "labels", "max_length", "template", "quantisation"):
        for folder, card in zip(folders, cards, strict=True):
            if getattr(card, name) != getattr(cards[0], name):
                raise AdapterError(
                    f"{folder} has {name} {getattr(card, name)!r}, {folders[0]} has {getattr(cards[0], name)!r}: "
                    "only adapters of one base and one reading can be averaged"
                )
    if cards[0].kind != "relation":
        raise AdapterError(f"{folders[0]} is a {cards[0].kind!r} adapter; relation adapters are needed here")
    return cards


def data_of(cards: Sequence[AdapterCard], dev: str) -> Mapping[str, str]:
    """Hashes of all that the parts were trained on and of the dev pairs of the average."""
    found = {Path(dev).name: file_sha256(dev)}
    for number, card in enumerate(cards, 1):
        found |= trained_on(card, f"part {number}")
    return found


def average(folders: Sequence[Path], out: Path, dev: str, pairs: Sequence[LabelledPair], cost: float) -> AdapterCard:
    """Write the average of `folders` to `out`, calibrated on `pairs` of the file `dev`; returns its card."""
    from safetensors.torch import save_file

    cards = one_kind(folders)
    if out.resolve() in {folder.resolve() for folder in folders}:
        raise ConfigError(f"--out {out} is one of the adapters; name a new folder")
    tensors = averaged(folders)
    out.mkdir(parents=True, exist_ok=True)
    for file in folders[0].iterdir():
        if file.name not in (WEIGHTS, CARD, "README.md"):
            shutil.copy(file, out / file.name)
    save_file(tensors, out / WEIGHTS, metadata={"format": "pt"})
    card = replace(
        cards[0], weights_hash=weights_hash(out), data_hash=data_of(cards, dev), versions=versions(), probes=(),
        metrics={"average of": [card.digest for card in cards]},
    )  # fmt: skip
    card = calibrate(TorchRelationModel.assemble(out, card), pairs, cost)
    write_card(out, card)
    write_model_card(out, card)
    TorchRelationModel.load(out)  # an adapter that can't be read back is no result
    return card


def main(argv: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(
        prog="python -m training.average",
        description="Average adapters of one base and recipe, and calibrate the average on dev pairs.",
        epilog="example: python -m training.average runs/first/adapter runs/second/adapter --out runs/average",
    )
    parser.add_argument("adapters", type=Path, nargs="+", metavar="ADAPTER")
    parser.add_argument("--out", type=Path, required=True, help="folder of the average")
    parser.add_argument("--dev", default="data/derived/dev.jsonl", help="labelled pairs (default: %(default)s)")
    parser.add_argument("--max-dev-pairs", type=int, help="a seeded subset of them (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of the subset (default: %(default)s)")
    parser.add_argument("--false-merge-cost", type=float, default=4.0,
                        help="cost of a false relation against 1 for a missed one (default: %(default)s)")  # fmt: skip
    args = parser.parse_args(argv)
    try:
        if len(args.adapters) < 2:
            raise ConfigError("one adapter is its own average; give two or more")
        pairs = read_split(args.dev, "dev", args.max_dev_pairs, args.seed)
        card = average(args.adapters, args.out, args.dev, pairs, args.false_merge_cost)
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps({"digest": card.digest, "dev macro-F1": card.metrics["dev"]["macro_f1"]}, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
