"""A manager is a relation model plus a fuser; the pretrained one ships inside the package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from roam.adapters import CARD
from roam.errors import AdapterError, InputError
from roam.interfaces import Fuser, RelationModel

PRETRAINED = Path(__file__).parent / "pretrained"
DEFAULT_ADAPTER = "accurate"
"""Name of the shipped relation adapter that `pretrained` stands for: the cheapest that leaves unrelated facts alone."""
SHIPPED_FUSER = PRETRAINED / "fuser"
"""Folder of the fuser adapter of this package, where one is shipped."""

AUTO_FUSION: Final = "deterministic"
"""What `fusion="auto"` means: the better writer on the fusion test file, "deterministic" (rules) or "pretrained"."""


@dataclass(frozen=True)
class Manager:
    """What `roam.Memory` asks for relations and views."""

    relation_model: RelationModel
    fuser: Fuser


def adapter_folder(name: str | Path) -> Path:
    """Folder of `pretrained`, of a shipped adapter by name, or of any other adapter folder."""
    if str(name) == "pretrained":
        return PRETRAINED / DEFAULT_ADAPTER
    if (PRETRAINED / str(name)).is_dir():
        return PRETRAINED / str(name)
    folder = Path(name).expanduser()
    if not folder.is_dir():
        names = ", ".join(sorted(path.name for path in PRETRAINED.iterdir() if (path / CARD).is_file()))
        raise AdapterError(
            f"no adapter folder {str(name)!r}: use 'pretrained', one of {names}, or a folder that training saved"
        )
    return folder


REMOTE = ("prompted", "served")
"""Names of managers that ask a server: they need no adapter here, and bring a fuser of their own or none."""


def adapters_of(name: str, backend: str | None = None) -> list[tuple[str, str | None]]:
    """The adapters that a manager's name stands for, each with its backend; `InputError` for a cascade of no such form.

    None for those that ask a server, two for a cascade, which names its own backends.
    """
    from roam.cascade import PREFIX, parse_cascade

    if name in REMOTE:
        return []
    return parse_cascade(name)[0] if name.startswith(PREFIX) else [(name, backend)]


def load_manager(
    name: str | Path = "pretrained", *, base: str | Path | None = None, backend: str | None = None
) -> Manager:
    """Load a relation adapter, or an exported model, with the deterministic fuser.

    `backend` is "auto" (ONNX Runtime on a processor, torch in bf16 on a GPU), "torch" (fp32), "torch-bf16", "onnx"
    or "onnx-int8"; by default what $ROAM_BACKEND says, else "auto". An ONNX model is built at its first use and kept in
    the cache.
    "prompted" asks the LLM at $ROAM_LLM_URL instead (`roam.prompted`), "served" the adapter in the server at
    $ROAM_SERVED_RELATION (`roam.served`), "cascade:FAST,ACCURATE,MARGIN" a fast model before an accurate one
    (`roam.cascade`).
    Raises `InputError`, `AdapterError`, `BaseModelError`, `ExportError` or `LLMError`.
    """
    if str(name) == "prompted":
        from roam.llm import LLMClient
        from roam.llm.settings import settings_from_environment
        from roam.prompted import prompted_manager

        return prompted_manager(LLMClient(settings_from_environment()))
    if str(name) == "served":
        from roam.served import manager_from_environment

        return manager_from_environment()
    from roam.backends import load_relation_model
    from roam.cascade import PREFIX, load_cascade
    from roam.fusion import DeterministicFuser

    if str(name).startswith(PREFIX):
        if backend is not None:
            raise InputError(f"backend {backend!r} with {name!r}: name a backend for each model, as ADAPTER@BACKEND")
        return Manager(load_cascade(str(name), base=base), DeterministicFuser())
    return Manager(load_relation_model(adapter_folder(name), base=base, backend=backend), DeterministicFuser())
