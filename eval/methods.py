"""The memory-management methods that benchmarks compare, by name.

- `append`: every fact stays a Primary (the paper's Append-all).
- `newest-wins` or `newest-wins:0.9`: the newest of two facts whose cosine reaches that value replaces the other.
- `roam`: the shipped adapter; any other name is an adapter folder. Behind it a policy may stand: `roam:con` and
  `roam:con+eqv` let only those relations act (section 3.4.1), `roam:nofusion` retrieves the Primaries' atomic texts
  (section 3.4.2).
- `all`: all of these for the shipped adapter.

Exact duplicates become one under every method, as the store merges them without asking a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.store_model import AppendModel, CachedRelationModel, NewestWinsModel, RelationSubset
from roam.errors import InputError
from roam.interfaces import Embedder, RelationModel
from roam.relations import Relation

ALL = ("append", "newest-wins", "roam:con", "roam:con+eqv", "roam:nofusion", "roam")
DEFAULT_SIMILARITY = 0.8
"""Cosine at which `newest-wins` replaces; a choice, so runs may name others beside it."""
POLICIES: Mapping[str, tuple[Relation, ...]] = {
    "con": (Relation.CON,),
    "con+eqv": (Relation.CON, Relation.EQV),
}
NO_FUSION = "nofusion"


@dataclass(frozen=True, slots=True)
class Method:
    """A relation model and how views are made: `fusion` as `roam.Memory.open` takes it."""

    name: str
    relation_model: RelationModel
    fusion: str = "deterministic"

    def identity(self) -> dict[str, Any]:
        """What decides the method's results, as JSON values; the name does not."""
        return {
            "model": self.relation_model.digest,
            "thresholds": {str(relation): float(v) for relation, v in sorted(self.relation_model.thresholds.items())},
            "fusion": self.fusion,
        }


def split_names(text: str) -> list[str]:
    """The method names of a comma-separated list, each once; `InputError` when there is none."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    names = [each for name in names for each in (ALL if name == "all" else (name,))]
    if not names:
        raise InputError(
            f"--managers {text!r} names none: use {', '.join(ALL)}, all, or adapter folders in the place of roam"
        )
    return list(dict.fromkeys(names))


def build_methods(
    names: Sequence[str],
    embedder: Embedder,
    *,
    cache: str | Path,
    thresholds: Mapping[Relation, float] | None,
    stack: ExitStack,
) -> list[Method]:
    """Return the methods called `names`; each adapter is loaded once.

    Judgements of adapters go through the SQLite file `cache`, which `stack` closes. `thresholds` replace the adapters'
    own. Raises `InputError` for a bad name, `AdapterError` or `BaseModelError` for an adapter that can't be loaded.
    """
    loaded: dict[str, RelationModel] = {}
    methods = []
    for name in names:
        base, _, option = name.rpartition(":")
        if name == "append":
            methods.append(Method(name, AppendModel(), "off"))
        elif name == "newest-wins" or base == "newest-wins":
            similarity = _similarity(name, option) if base else DEFAULT_SIMILARITY
            methods.append(Method(name, NewestWinsModel(embedder, similarity), "off"))
        else:
            adapter = base if option in {*POLICIES, NO_FUSION} else name
            if adapter not in loaded:
                loaded[adapter] = stack.enter_context(CachedRelationModel(_load(adapter), cache, thresholds))
            model = loaded[adapter]
            if option in POLICIES:
                methods.append(Method(name, RelationSubset(model, POLICIES[option])))
            else:
                methods.append(Method(name, model, "off" if option == NO_FUSION else "deterministic"))
    return methods


def _load(adapter: str) -> RelationModel:
    from roam.managers import load_manager

    return load_manager("pretrained" if adapter == "roam" else adapter).relation_model


def _similarity(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1:
        raise InputError(f"--managers {name!r}: {text!r} is no cosine; write newest-wins:0.9, above 0 and at most 1")
    return value
