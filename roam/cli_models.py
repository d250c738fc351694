"""Commands that need models and no store: `relate`, `pull`; and `doctor`."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import platform
from collections.abc import Callable
from typing import TYPE_CHECKING

from roam.cli_render import probabilities_text, to_json
from roam.errors import RoamError

if TYPE_CHECKING:
    from roam.cli import ManagerLoader

# What each extra brings, by the name it is imported under.
CORE = ("numpy", "sqlite_vec", "apsw", "tqdm")
MODELS = (
    "torch", "transformers", "peft", "safetensors", "huggingface_hub", "tokenizers", "onnx", "onnxruntime",
)  # fmt: skip


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

    found = [ensure_base(name) for name in list(args.bases) or _needed(args.manager)]
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


def _needed(manager: str) -> list[str]:
    from roam.adapters import read_card
    from roam.embedders import DEFAULT_EMBEDDER
    from roam.managers import adapter_folder
    from roam.onnx_model import MANIFEST

    folder = adapter_folder(manager)
    if (folder / MANIFEST).is_file():  # an exported model has its base's weights in it
        return [DEFAULT_EMBEDDER]
    return list(dict.fromkeys([read_card(folder).base, DEFAULT_EMBEDDER]))


def doctor(args: argparse.Namespace, load_manager: ManagerLoader) -> int:
    """Report versions, missing packages, base weights, the adapter and the store; 1 when something is missing."""
    import roam

    rows = [("roam", True, roam.__version__), ("python", True, platform.python_version())]
    rows += [_package(name) for name in (*CORE, *MODELS)]
    rows += [_adapter(args), *_bases(args.manager), _store(args.db)]
    if args.json:
        print(to_json([{"check": name, "ok": ok, "detail": detail} for name, ok, detail in rows]))
    else:
        for name, ok, detail in rows:
            print(f"{'ok  ' if ok else 'FAIL'}  {name:<18} {detail}")
    return 0 if all(ok for _, ok, _ in rows) else 1


Row = tuple[str, bool, str]


def _package(name: str) -> Row:
    if importlib.util.find_spec(name) is None:
        extra = "[models]" if name in MODELS else ""
        return name, False, f"not installed: pip install 'roam-distilled{extra}'"
    return name, True, importlib.metadata.version(name.replace("_", "-"))


def _adapter(args: argparse.Namespace) -> Row:
    from roam.backends import plan_backend
    from roam.managers import adapter_folder

    try:
        plan = plan_backend(adapter_folder(args.manager), args.backend)
    except RoamError as error:
        return "adapter", False, str(error)
    return "adapter", True, f"{args.manager}: {plan.card.base}, model {plan.digest} on {plan.backend} ({plan.reason})"


def _bases(manager: str) -> list[Row]:
    from roam.bases import resolve_base

    try:
        names = _needed(manager)
    except RoamError:  # the adapter's own row says what is wrong with it
        names = []
    rows: list[Row] = []
    for name in names:
        try:
            base = resolve_base(name, download=False)
        except RoamError as error:
            rows.append(("base weights", False, str(error)))
        except ModuleNotFoundError as error:
            rows.append(("base weights", False, f"{name}: {error.name} is not installed"))
        else:
            rows.append(("base weights", True, f"{base.name} at {base.path}"))
    return rows


def _store(path: str) -> Row:
    from pathlib import Path

    file = Path(path)
    return "store", True, f"{path}, {file.stat().st_size:,} bytes" if file.is_file() else f"{path} (none yet)"


COMMANDS: dict[str, Callable[[argparse.Namespace, ManagerLoader], int]] = {
    "relate": relate, "pull": pull, "doctor": doctor,
}  # fmt: skip
