"""Speed of the relation model on this machine, side by side: `python scripts/bench_relation.py --pairs FILE`.

Same merged weights, same pairs, one run: sentence-transformers' `CrossEncoder.predict` in fp32 (what a user would
pick), our torch path and our ONNX Runtime path in fp32 and int8. The systems take turns, so that what else the machine
does falls on all of them. Prints JSON: median pairs/s, the ratio to CrossEncoder, and how often each says the same.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # so that `python scripts/bench_relation.py` finds the repository's packages

from data.pairs import read_pairs  # noqa: E402
from roam.adapters import read_card  # noqa: E402
from roam.errors import InputError, RoamError  # noqa: E402
from roam.managers import adapter_folder  # noqa: E402
from roam.onnx_cache import load_cached  # noqa: E402
from roam.onnx_model import session_threads  # noqa: E402
from roam.records import Pair  # noqa: E402
from roam.relation_model import PairClassifier, TorchRelationModel  # noqa: E402
from roam.relations import RELATIONS  # noqa: E402
from scripts.speed.refused import refused  # noqa: E402
from training.export import export_merged  # noqa: E402

PEER = "CrossEncoder.predict"
WARM_UP = 10  # pairs
Predict = Callable[[Sequence[Pair]], NDArray[np.float32]]


def peer(adapter: Path, scratch: Path) -> Predict:
    """`CrossEncoder.predict` with the adapter's merged weights, at its defaults (batches of 32, sorted by length)."""
    from sentence_transformers import CrossEncoder

    card = read_card(adapter)
    export_merged(adapter, scratch / "merged")
    encoder = CrossEncoder(
        str(scratch / "merged"), device="cpu", max_length=card.max_length, model_kwargs={"dtype": "float32"}
    )
    columns = [card.labels.index(relation.value) for relation in RELATIONS]
    return lambda pairs: np.asarray(
        encoder.predict([(pair.old, pair.new) for pair in pairs], show_progress_bar=False)[:, columns]
    )


def ours(model: PairClassifier, swaps: bool) -> Predict:
    """One pass a pair, as the peer makes; with `swaps`, doubtful pairs are judged in both orders as in the store."""
    if not swaps:
        model.card = replace(model.card, swap_margin=0.0)
    return model.predict_logits


def loaders(adapter: Path, scratch: Path, swaps: bool) -> dict[str, Callable[[], Predict]]:
    """How to load each system, by name."""
    return {
        PEER: lambda: peer(adapter, scratch),
        "torch": lambda: ours(TorchRelationModel.load(adapter, device="cpu"), swaps),
        "onnx": lambda: ours(load_cached(adapter, "onnx"), swaps),
        "onnx-int8": lambda: ours(load_cached(adapter, "onnx-int8"), swaps),
    }


def take_turns(systems: Mapping[str, Predict], pairs: Sequence[Pair], repeats: int) -> dict[str, list[float]]:
    """Seconds of each system's passes over `pairs`; an unmeasured pass over the first ones before them."""
    from tqdm import tqdm

    seconds: dict[str, list[float]] = {name: [] for name in systems}
    for predict in systems.values():
        predict(pairs[:WARM_UP])
    for name in tqdm([*systems] * repeats, desc=f"{len(pairs)} pairs", disable=None):
        started = time.perf_counter()
        systems[name](pairs)
        seconds[name].append(time.perf_counter() - started)
    return seconds


def rates(seconds: Mapping[str, Sequence[float]], pairs: int) -> dict[str, dict[str, float]]:
    """Median pairs/s of each system, its spread, and the median over turns of its speed relative to the peer's."""
    return {
        name: {
            "pairs_per_second": round(pairs / statistics.median(spent), 2),
            "slowest": round(pairs / max(spent), 2),
            "fastest": round(pairs / min(spent), 2),
            "times_peer": round(
                statistics.median(theirs / own for theirs, own in zip(seconds[PEER], spent, strict=True)), 2
            ),
        }
        for name, spent in seconds.items()
    }


def bench(adapter: Path, pairs: Sequence[Pair], batches: Sequence[int], repeats: int, swaps: bool) -> dict[str, Any]:
    """Figures of one run."""
    import onnxruntime
    import torch

    torch.set_num_threads(session_threads())
    with tempfile.TemporaryDirectory() as scratch:
        systems, load = {}, {}
        for name, make in loaders(adapter, Path(scratch), swaps).items():
            started = time.perf_counter()
            systems[name] = make()
            load[name] = round(time.perf_counter() - started, 2)
        most = pairs[: max(batches)]
        said = {name: predict(most).argmax(axis=1) for name, predict in systems.items()}
        found = {f"batch_{size}": rates(take_turns(systems, most[:size], repeats), size) for size in batches}
    reference = TorchRelationModel.load(adapter, device="cpu")
    tokens = [len(encoding) for encoding in reference.encoder.encode(most)]
    return {
        "adapter": reference.digest,
        "repeats": repeats,
        "swaps": swaps,
        "tokens_a_pair": round(statistics.mean(tokens), 1),
        "load_seconds": load,
        **found,
        "same_relation_as_torch": {
            name: round(float((columns == said["torch"]).mean()), 4) for name, columns in said.items()
        },
        "machine": {"processor": platform.processor(), "threads": session_threads(), "torch": torch.__version__,
                    "onnxruntime": onnxruntime.__version__},
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Print the figures; 2 on bad input, with one line on standard error."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: python scripts/bench_relation.py --batches 10 640 --repeats 7",
    )  # fmt: skip
    parser.add_argument("--adapter", default="pretrained", help="'pretrained' or a folder (default: %(default)s)")
    parser.add_argument("--pairs", type=Path, default=Path("data/derived/dev.jsonl"),
                        help="pair file; its first pairs are taken (default: %(default)s)")  # fmt: skip
    parser.add_argument("--batches", type=int, nargs="+", default=[10, 640], help="pairs a call (default: 10 640)")
    parser.add_argument("--repeats", type=int, default=5, help="measured turns (default: %(default)s)")
    parser.add_argument("--swaps", action="store_true", help="judge doubtful pairs in both orders, as the store does")
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    args = parser.parse_args(argv)
    try:
        if min(args.batches) < 1 or args.repeats < 1:
            raise InputError(f"--batches {args.batches} and --repeats {args.repeats} must be at least 1")
        if not args.pairs.is_file():
            raise InputError(
                f"--pairs {str(args.pairs)!r} does not exist: `python -m data.build` makes it, or name one"
            )
        pairs = [Pair(pair.old, pair.new) for pair in read_pairs(args.pairs)]
        if len(pairs) < max(args.batches):
            raise InputError(f"{args.pairs} holds {len(pairs)} pairs: too few for a batch of {max(args.batches)}")
        text = json.dumps(bench(adapter_folder(args.adapter), pairs, args.batches, args.repeats, args.swaps), indent=2)
    except (RoamError, ModuleNotFoundError) as error:
        return refused("bench_relation", error)
    print(text)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
