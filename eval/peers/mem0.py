"""The Mem0 baseline: an LLM chooses add, update, delete or none for each fact beside the memories most like it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from eval.peers.coverage import represented
from eval.peers.mem0_prompt import PROMPT_DIGEST, Event, Operation, update_question
from eval.peers.store import Unit
from eval.peers.vectors import nearest_places
from eval.store_run import Fact
from roam.interfaces import Embedder
from roam.llm.client import LLMClient, Unanswered
from roam.llm.usage import Usage


@dataclass
class _Memory:
    """One text, and the facts that went into it or were told beside it (texts by id)."""

    text: str
    vector: NDArray[np.float32]
    anchor: str
    lineage: dict[str, str] = field(default_factory=dict)


class Mem0:
    """Direct operations by prompt (paper section 3.1.2)."""

    def __init__(self, client: LLMClient) -> None:
        self.client = client

    @property
    def digest(self) -> str:
        """Wording and model."""
        return f"mem0:{self.client.settings.model}@{PROMPT_DIGEST}"

    @property
    def usage(self) -> Usage:
        """What the client has cost so far."""
        return self.client.usage

    def open(self, embedder: Embedder, k: int) -> Mem0Store:
        """An empty store."""
        return Mem0Store(self.client, embedder, k)


class Mem0Store:
    """Memories of one user. `misplaced` counts operations on ids that the model was not given."""

    def __init__(self, client: LLMClient, embedder: Embedder, k: int) -> None:
        self.client, self.embedder, self.k = client, embedder, k
        self.misplaced = 0
        self._memories: list[_Memory] = []

    def add(self, fact: Fact) -> None:
        """Ask what the fact does to the memories like it, and do that; without a usable answer add the fact as is."""
        vector = self._vector(fact.text)
        places = nearest_places(vector, [memory.vector for memory in self._memories], self.k)
        shown = [self._memories[place] for place in places]
        answer = self.client.ask(update_question([memory.text for memory in shown], fact.text))
        if isinstance(answer, Unanswered):
            self._memories.append(_Memory(fact.text, vector, fact.id, {fact.id: fact.text}))
            return
        before = len(answer)
        known = {str(place): memory for place, memory in enumerate(shown)}
        usable = [operation for operation in answer if operation.event is Event.ADD or operation.id in known]
        self.misplaced += before - len(usable)
        if before and not usable:  # all of it was about memories that do not exist
            usable = [Operation("", fact.text, Event.ADD)]
        for operation in usable:
            self._apply(operation, fact, known)
        if all(operation.event is not Event.ADD for operation in usable):
            for memory in shown:  # "already there": coverage decides which of them represent the fact
                memory.lineage.setdefault(fact.id, fact.text)

    def _apply(self, operation: Operation, fact: Fact, known: dict[str, _Memory]) -> None:
        if operation.event is Event.ADD:
            if all(operation.text != memory.text for memory in known.values()):  # not one listed once more
                vector = self._vector(operation.text)
                self._memories.append(_Memory(operation.text, vector, fact.id, {fact.id: fact.text}))
            return
        memory = known[operation.id]
        if operation.event is Event.UPDATE:
            memory.text, memory.vector, memory.anchor = operation.text, self._vector(operation.text), fact.id
            memory.lineage[fact.id] = fact.text
        elif operation.event is Event.DELETE:
            self._memories = [other for other in self._memories if other is not memory]

    def units(self) -> list[Unit]:
        """The memories, each with the facts of its lineage that its text still represents (appendix F.2)."""
        return [Unit(m.text, m.anchor, represented(m.text, m.lineage)) for m in self._memories]

    def _vector(self, text: str) -> NDArray[np.float32]:
        return np.asarray(self.embedder.embed([text])[0], dtype=np.float32)
