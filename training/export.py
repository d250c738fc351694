"""Export an adapter: `python -m training.export ADAPTER --format merged|onnx|onnx-int8 --out DIR`.

`merged` adds the LoRA weights to the base's fp32 weights and saves a folder that needs neither PEFT nor the base. What
was saved is read back and compared with the adapter; a difference is an error. Merging into a quantised base loses
quality (issue 2321 of peft), so it has to be asked for, and the parity report then says what it cost. The ONNX formats
are in `training.export_onnx`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from data.fusion import read_fusion
from data.pairs import read_pairs
from eval.provenance import check_output
from roam.adapters import CARD, AdapterCard, read_card, write_card
from roam.arguments import ArgumentParser
from roam.bases import content_hash, resolve_base
from roam.errors import AdapterError, DataError, InputError, RoamError
from roam.fusion.model import LoadedFuser, load_language_model
from roam.onnx_model import PRECISIONS
from roam.pair_encoding import close_pairs
from roam.quantisation import placement
from roam.records import Pair
from roam.relation_model import TorchRelationModel, quiet_loading
from training.export_onnx import AGREEMENT_LIMITS, F1_LOSS_LIMIT, OnnxParity, export_onnx, require_new
from training.fuser_data import prompt_of

FORMATS = ("merged", *PRECISIONS)
PARITY_TOLERANCE = 1e-2
"""Largest logit gap that fp32 rounding explains; a lost head, label map or adapter gives far more."""


@dataclass(frozen=True)
class Parity:
    """How the exported model answers compared with the adapter on the same inputs.

    `agreement` counts equal answers: the predicted relation, or the whole generated view.
    """

    compared: int
    agreement: int
    largest_logit_gap: float

    def __str__(self) -> str:
        return (
            f"parity on {self.compared} inputs: {self.agreement}/{self.compared} answers agree, "
            f"largest logit gap {self.largest_logit_gap:.2e}"
        )


class Answer(NamedTuple):
    """The answer to one input (a relation's column or a view) and the logits behind it."""

    said: str
    logits: NDArray[np.float32]


def compare(before: Sequence[Answer], after: Sequence[Answer]) -> Parity:
    """Parity of two lists of answers to the same inputs."""
    same = sum(a.said == b.said for a, b in zip(before, after, strict=True))
    gaps = [float(np.abs(a.logits - b.logits).max()) for a, b in zip(before, after, strict=True)]
    return Parity(len(gaps), same, max(gaps))


def read_inputs(card: AdapterCard, path: Path | None) -> list[Pair]:
    """The pairs to compare on; for a fuser (rendered input, target). Without a file, the adapter's own probes."""
    if path is None:
        if not card.probes:
            raise AdapterError(f"the adapter's {CARD} holds no probes to compare on; give --pairs FILE")
        return [Pair(probe.old, probe.new) for probe in card.probes]
    if not path.is_file():
        raise DataError(f"--pairs {str(path)!r} does not exist; give a pair file (relation) or a fusion file (fuser)")
    if card.kind == "fuser":
        return [Pair(prompt_of(example), example.target) for example in read_fusion(path)]
    return [Pair(pair.old, pair.new) for pair in read_pairs(path)]


def answers(loaded: TorchRelationModel | LoadedFuser, inputs: Sequence[Pair]) -> list[Answer]:
    """What a model says to each input."""
    if isinstance(loaded, LoadedFuser):
        views = loaded.generate([pair.old for pair in inputs])
        return [
            Answer(view.text, loaded.target_logits(pair.old, pair.new)[0])
            for view, pair in zip(views, inputs, strict=True)
        ]
    logits = loaded.predict_logits(inputs)
    return [Answer(str(row.argmax()), row) for row in logits]


def quantisation(folder: Path) -> str | None:
    """The method a base's weights are stored with, None for plain weights."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("quantization_config")
    if config is None:
        return None
    bits = "4-bit" if config.get("load_in_4bit") else "8-bit" if config.get("load_in_8bit") else "quantised"
    return f"{bits} ({config.get('quant_method', 'unknown method')})"


def load_base(card: AdapterCard, path: Path, tokenizer: Any) -> Any:
    """The base in fp32 (or in 4 bits, when stored or trained so), as a classifier or a language model."""
    import torch
    from transformers import AutoModelForSequenceClassification

    if card.kind == "fuser":
        return load_language_model(path)
    with quiet_loading():
        model = AutoModelForSequenceClassification.from_pretrained(
            path, num_labels=len(card.labels), id2label=dict(enumerate(card.labels)),
            label2id={name: index for index, name in enumerate(card.labels)}, dtype=torch.float32,
            ignore_mismatched_sizes=True, **placement(card.quantisation, "cpu"),
        )  # fmt: skip
    model.config.pad_token_id = tokenizer.pad_token_id  # kept in the export: decoders pool by it
    return model


def wrap(model: Any, tokenizer: Any, card: AdapterCard) -> TorchRelationModel | LoadedFuser:
    kind = LoadedFuser if card.kind == "fuser" else TorchRelationModel
    return kind(model, tokenizer, card)


def export_merged(
    adapter: Path, out: Path, *, pairs: Path | None = None, base: str | None = None, allow_quantised: bool = False
) -> Parity:
    """Merge `adapter` into its base, save the result in `out` and return the parity with the adapter.

    Nothing is left in `out` on an error. Raises `AdapterError` (quantised base, failed parity), `BaseModelError`,
    `DataError` or `InputError`.
    """
    from peft import PeftModel
    from transformers import AutoTokenizer

    card = read_card(adapter)
    resolved = resolve_base(base or card.base, expected_hash=card.base_hash)
    method = quantisation(resolved.path) or (f"4-bit ({card.quantisation})" if card.quantisation else None)
    if method is not None and not allow_quantised:
        instead = "" if card.quantisation else "give the full-precision base with --base, or "
        raise AdapterError(
            f"base {card.base!r} is {method}: merging into quantised weights degrades the result; {instead}"
            "accept it with --allow-quantised and read the parity report"
        )
    require_new(out)
    inputs = read_inputs(card, pairs)
    tokenizer = AutoTokenizer.from_pretrained(str(adapter))
    close_pairs(tokenizer)
    tuned = PeftModel.from_pretrained(load_base(card, resolved.path, tokenizer), str(adapter))
    plain = wrap(tuned, tokenizer, card)
    plain.verify_probes(str(adapter))
    before = answers(plain, inputs)
    if method is not None:  # merge into what the quantised weights stand for, not into the codes
        dequantised = load_base(card, resolved.path, tokenizer).dequantize().float()
        tuned = PeftModel.from_pretrained(dequantised, str(adapter))
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        folder = Path(scratch) / "merged"
        tuned.merge_and_unload(safe_merge=True).save_pretrained(str(folder))
        tokenizer.save_pretrained(str(folder))
        merged = replace(card, quantisation="")
        write_card(folder, merged)
        parity = compare(before, answers(wrap(load_base(merged, folder, tokenizer), tokenizer, merged), inputs))
        failed = parity.agreement < parity.compared or not parity.largest_logit_gap <= PARITY_TOLERANCE
        if failed and method is None:
            raise AdapterError(f"the merged model does not answer as the adapter does: {parity}; nothing was written")
        report = {"format": "merged", "adapter": card.digest, "weights": content_hash(folder), "base": card.base,
                  "quantised_base": method, "parity": asdict(parity)}  # fmt: skip
        (folder / "export.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        if out.exists():
            out.rmdir()
        shutil.move(str(folder), str(out))
    return parity


def build_parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog="python -m training.export",
        description="Turn an adapter folder into a model that needs neither PEFT nor the base, and check that it "
        "answers the same. merged: a transformers folder; onnx, onnx-int8: a graph for ONNX Runtime (relation only).",
        epilog="example: python -m training.export runs/relation-minilm --format onnx-int8 --out out/int8 "
        "--pairs data/relation_test_843.jsonl",
    )
    parser.add_argument("adapter", type=Path, help="a training run, or the adapter folder that it saved")
    parser.add_argument("--format", default="merged", help=f"one of: {', '.join(FORMATS)} (default: %(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="new folder for the model")
    parser.add_argument("--pairs", type=Path, help="inputs to compare on: a pair file, for a fuser a fusion file "
                        "(default: the adapter's probes)")  # fmt: skip
    parser.add_argument("--base", help="folder of the base weights, when they are not found by name")
    parser.add_argument("--allow-quantised", action="store_true", help="merged: merge even if the base is quantised")
    agreements = ", ".join(f"{100 * limit:g} for {name}" for name, limit in AGREEMENT_LIMITS.items())
    parser.add_argument("--least-agreement", type=float, metavar="PERCENT",
                        help=f"ONNX: pairs that must get the same relation (default: {agreements})")  # fmt: skip
    parser.add_argument("--most-f1-loss", type=float, metavar="POINTS", default=100 * F1_LOSS_LIMIT,
                        help="ONNX: macro-F1 that may be lost (default: %(default)s)")  # fmt: skip
    return parser


def export(args: argparse.Namespace) -> Parity | OnnxParity:
    """Export as the command line says; raises what `export_merged` and `export_onnx` raise."""
    if args.format not in FORMATS:
        raise InputError(f"--format {args.format!r} can't be exported; formats are: {', '.join(FORMATS)}")
    for option, value in (("--least-agreement", args.least_agreement), ("--most-f1-loss", args.most_f1_loss)):
        if value is not None and not 0 <= value <= 100:
            raise InputError(f"{option} {value} is not between 0 and 100")
    check_output(args.out)
    adapter = args.adapter / "adapter" if (args.adapter / "adapter" / CARD).is_file() else args.adapter
    if args.format == "merged":
        return export_merged(adapter, args.out, pairs=args.pairs, base=args.base, allow_quantised=args.allow_quantised)
    least = None if args.least_agreement is None else args.least_agreement / 100
    return export_onnx(
        adapter, args.out, args.format, pairs=args.pairs, base=args.base, least_agreement=least,
        most_f1_loss=args.most_f1_loss / 100,
    )  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    try:
        parity = export(args)
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(parity)
    print(f"saved {args.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
