"""The manager of a command: an adapter loads at its first pair, so that `roam list` never pays for torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from roam.backends import plan_backend
from roam.cascade import PREFIX
from roam.fusion import DeterministicFuser
from roam.managers import REMOTE, Manager, adapter_folder, load_manager
from roam.records import Pair
from roam.relations import Relation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from roam.interfaces import RelationModel


class Chosen(NamedTuple):
    """What a store is opened with."""

    manager: Manager
    fusion: str


def choose_manager(name: str, *, base: str | None = None, backend: str | None = None) -> Chosen:
    """The manager called `name`, as `load_manager` understands it.

    A cascade loads at once: its digest is that of the models that it has. Raises what `load_manager` raises.
    """
    if name in REMOTE:
        return Chosen(load_manager(name), "manager")
    if name.startswith(PREFIX):
        return Chosen(load_manager(name, base=base, backend=backend), "auto")
    return Chosen(Manager(LazyRelationModel(name, base=base, backend=backend), DeterministicFuser()), "auto")


class LazyRelationModel:
    """The relation model of a manager by name; what the store asks of it up front comes from `roam.json`.

    Raises `AdapterError` at once for a folder that is no adapter; base weights are looked for at the first pair.
    """

    def __init__(self, manager: str, *, base: str | None = None, backend: str | None = None) -> None:
        plan = plan_backend(adapter_folder(manager), backend)
        self.digest = plan.digest
        self.thresholds: Mapping[Relation, float] = plan.card.relation_thresholds()
        self._manager, self._base, self._backend = manager, base, backend

    @cached_property
    def _model(self) -> RelationModel:
        model = load_manager(self._manager, base=self._base, backend=self._backend).relation_model
        self.digest = model.digest  # another one than planned when the ONNX model could not be built
        return model

    def predict_proba(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """Probabilities of the loaded model, shape (len(pairs), 5)."""
        return self._model.predict_proba(pairs)
