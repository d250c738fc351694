"""What a report was made from: hashes of files and libraries' versions."""

from __future__ import annotations

import json
import platform
import tempfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import roam
from roam.errors import InputError

LIBRARIES = ("numpy", "scikit-learn", "torch", "transformers", "peft", "datasets", "accelerate", "tokenizers")


def versions() -> dict[str, str]:
    """Versions of this project, Python and the libraries that the figures depend on (those installed)."""
    found = {"roam": roam.__version__, "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def check_output(path: str | Path, *, file: bool = False, name: str = "--out") -> None:
    """`InputError` unless `path` is, or can become, a folder (or with `file` a file) to write in. Creates nothing.

    Programs ask this before they load models: what they find could not be kept.
    """
    given = Path(path).absolute()
    if file and given.is_dir():
        raise InputError(f"{name} {path} is a folder; give a file")
    there = given.parent if file else next(place for place in (given, *given.parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        what = "file in a folder that is there and can be written" if file else "folder that can be written"
        raise InputError(f"{name} {path}: {error.strerror}; give a {what}") from error


def output_folder(path: str | Path) -> Path:
    """Create `path` if needed and return it; `InputError` when it can't be a folder to write in."""
    check_output(path)
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {path}: {error.strerror}; give a folder that can be written") from error
    return folder


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write indented UTF-8 JSON with a final newline; NaN is refused, so that other tools can read the file."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def write_jsonl(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write one JSON object a line."""
    text = "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")
