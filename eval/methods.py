"""The memory-management methods that benchmarks compare, by name.

- `append`: every fact stays a Primary (the paper's Append-all).
- `newest-wins` or `newest-wins:0.9`: the newest of two facts whose cosine reaches that value replaces the other.
- `roam`: the shipped adapter; any other name is an adapter folder. Behind it a policy may stand: `roam:con` and
  `roam:con+eqv` let only those relations act (section 3.4.1), `roam:nofusion` retrieves the Primaries' atomic texts
  (section 3.4.2).
- `prompted`: ROAM with an LLM for relations and views, as in the paper; the same policies may stand behind it.
- `mem0`, `evermemos` or `evermemos:0.7`: the paper's baselines with the same LLM (section 3.1.2); `mem0ai` is the real
  package, fed the same facts.
- `all`: all of these for the shipped adapter that need no LLM.

Exact duplicates become one under every method but the peers, as the store merges them without asking a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval.store_model import AppendModel, CachedRelationModel, NewestWinsModel, RelationSubset
from roam.errors import InputError
from roam.interfaces import Embedder, Fuser, RelationModel
from roam.relations import Relation

if TYPE_CHECKING:
    from eval.peers.store import Peer
    from roam.llm import LLMClient

ALL = ("append", "newest-wins", "roam:con", "roam:con+eqv", "roam:nofusion", "roam")
DEFAULT_SIMILARITY = 0.8
"""Cosine at which `newest-wins` replaces; a choice, so runs may name others beside it."""
POLICIES: Mapping[str, tuple[Relation, ...]] = {
    "con": (Relation.CON,),
    "con+eqv": (Relation.CON, Relation.EQV),
}
NO_FUSION = "nofusion"
PROMPTED = "prompted"
PEERS = ("mem0", "mem0ai", "evermemos")


@dataclass(frozen=True, slots=True)
class Method:
    """A relation model and how views are made (`fusion` as `roam.Memory.open` takes it), or a peer with its own store.

    `one_by_one`: facts are added singly, so that no pair is judged in vain; that matters where each costs a call.
    """

    name: str
    relation_model: RelationModel
    fusion: str | Fuser = "deterministic"
    peer: Peer | None = None
    one_by_one: bool = False

    def identity(self) -> dict[str, Any]:
        """What decides the method's results, as JSON values; the name does not."""
        if self.peer is not None:
            return {"peer": self.peer.digest}
        return {
            "model": self.relation_model.digest,
            "thresholds": {str(relation): float(v) for relation, v in sorted(self.relation_model.thresholds.items())},
            "fusion": self.fusion if isinstance(self.fusion, str) else self.fusion.name,
        }


def split_names(text: str) -> list[str]:
    """The method names of a comma-separated list, each once; `InputError` when there is none."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    names = [each for name in names for each in (ALL if name == "all" else (name,))]
    if not names:
        raise InputError(
            f"--managers {text!r} names none: use {', '.join(ALL)}, all, {PROMPTED}, {', '.join(PEERS)}, or adapter "
            "folders in the place of roam"
        )
    return list(dict.fromkeys(names))


def needs_llm(name: str) -> bool:
    """Whether the method of this name asks an LLM."""
    return name.partition(":")[0] in (PROMPTED, *PEERS)


def build_methods(
    names: Sequence[str],
    embedder: Embedder,
    *,
    cache: str | Path,
    thresholds: Mapping[Relation, float] | None,
    stack: ExitStack,
    client: LLMClient | None = None,
) -> list[Method]:
    """Return the methods called `names`; each adapter is loaded once.

    Judgements of adapters go through the SQLite file `cache`, which `stack` closes. `thresholds` replace the adapters'
    own. `client` is the LLM of the methods that ask one. Raises `InputError` for a bad name or a missing client,
    `AdapterError` or `BaseModelError` for an adapter that can't be loaded.
    """
    loaded: dict[str, RelationModel] = {}
    methods = []
    for name in names:
        base, _, option = name.rpartition(":")
        if needs_llm(name):
            methods.append(_llm_method(name, client))
        elif name == "append":
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


def _llm_method(name: str, client: LLMClient | None) -> Method:
    """A prompted method; its judgements are kept by the client's own cache, if it has one."""
    from eval.peers.evermemos import DEFAULT_SIMILARITY as GROUPED
    from eval.peers.evermemos import EverMemOS
    from eval.peers.mem0 import Mem0
    from eval.peers.mem0_package import Mem0Package
    from roam.prompted import prompted_manager

    if client is None:
        raise InputError(f"--managers {name!r} asks an LLM: say which with --llm MODEL@URL")
    kind, _, option = name.partition(":")
    if kind == PROMPTED:
        manager = prompted_manager(client)
        if option not in ("", NO_FUSION, *POLICIES):
            raise InputError(f"--managers {name!r}: use {PROMPTED}, alone or with {', '.join((NO_FUSION, *POLICIES))}")
        model = (
            RelationSubset(manager.relation_model, POLICIES[option]) if option in POLICIES else manager.relation_model
        )
        return Method(name, model, "off" if option == NO_FUSION else manager.fuser, one_by_one=True)
    if kind == "evermemos":
        return Method(name, AppendModel(), peer=EverMemOS(client, _similarity(name, option) if option else GROUPED))
    if option:
        raise InputError(f"--managers {name!r}: {kind} takes nothing behind it")
    return Method(name, AppendModel(), peer=Mem0(client) if kind == "mem0" else Mem0Package(client))


def _load(adapter: str) -> RelationModel:
    from roam.managers import load_manager

    return load_manager("pretrained" if adapter == "roam" else adapter).relation_model


def _similarity(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1:
        raise InputError(
            f"--managers {name!r}: {text!r} is no cosine; write {name.partition(':')[0]}:0.9, above 0 and at most 1"
        )
    return value
