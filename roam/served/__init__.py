"""Managers whose models run in a GPU server: a relation adapter behind vLLM or text-embeddings-inference, a fuser as a
LoRA module of vLLM. training/GPU.md tells how to start the servers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from roam.errors import InputError
from roam.fusion.deterministic import DeterministicFuser
from roam.fusion.guard import GuardedFuser
from roam.llm.settings import LLMSettings, parse_endpoint
from roam.managers import Manager
from roam.served.fuser import VllmFuser
from roam.served.relation import ServedRelationModel, TeiRelationModel, VllmRelationModel

__all__ = ["ServedRelationModel", "TeiRelationModel", "VllmFuser", "VllmRelationModel", "served_manager"]

KINDS: Final = {"vllm": VllmRelationModel, "tei": TeiRelationModel}
ENVIRONMENT: Final = "ROAM_SERVED"
"""Start of the environment variables: _RELATION, _ADAPTER and, for a served fuser, _FUSER and _FUSER_ADAPTER."""


def served_manager(
    relation: str, adapter: str | Path, *, fuser: str | None = None, fuser_adapter: str | Path | None = None
) -> Manager:
    """A manager over running servers; it asks the relation server for the adapter's probes and checks the answers.

    `relation` is `vllm:MODEL@URL` or `tei:MODEL@URL`, `adapter` the folder that `training.export --format merged` made
    and that the server runs. `fuser` is `MODULE@URL`, the name under which vLLM serves the LoRA module in
    `fuser_adapter`; without it the rules write views. Raises `InputError`, `AdapterError` or `LLMError`.
    """
    kind, settings = parse_served(relation)
    model = KINDS[kind].connect(settings, adapter)
    if (fuser is None) != (fuser_adapter is None):
        raise InputError("a served fuser needs both its endpoint (MODULE@URL) and its adapter folder")
    if fuser is None or fuser_adapter is None:
        return Manager(model, DeterministicFuser())
    return Manager(model, GuardedFuser(VllmFuser(parse_endpoint(fuser), fuser_adapter), model))


def parse_served(text: str) -> tuple[str, LLMSettings]:
    """Kind of server and settings from KIND:MODEL@URL; raises `InputError`."""
    kind, _, endpoint = text.partition(":")
    if kind not in KINDS or not endpoint:
        raise InputError(
            f"served relation model {text!r}: write vllm:MODEL@URL or tei:MODEL@URL, such as "
            "vllm:relation@http://127.0.0.1:8000"
        )
    return kind, parse_endpoint(endpoint)


def manager_from_environment() -> Manager:
    """The manager that $ROAM_SERVED_RELATION and its like name; `InputError` when one is missing."""
    found = {
        name: os.environ.get(f"{ENVIRONMENT}_{name}") for name in ("RELATION", "ADAPTER", "FUSER", "FUSER_ADAPTER")
    }
    relation, adapter = found["RELATION"], found["ADAPTER"]
    if not relation or not adapter:
        raise InputError(
            f"a served manager needs ${ENVIRONMENT}_RELATION (such as vllm:relation@http://127.0.0.1:8000) and "
            f"${ENVIRONMENT}_ADAPTER (the merged folder that the server runs)"
        )
    return served_manager(
        relation, adapter, fuser=found["FUSER"] or None, fuser_adapter=found["FUSER_ADAPTER"] or None
    )  # fmt: skip
