"""`Mem0Memory`: the store under the names of mem0's `Memory` class, for programs that were written against it.

    from roam.integrations.mem0 import Mem0Memory

    m = Mem0Memory.open("memory.db")
    m.add("I moved to Ghent.", user_id="maya")
    m.search("Where does she live?", filters={"user_id": "maya"})

What differs, because no LLM is called: a string is one fact, and of a list of messages each of the user's is one,
unless `extract` makes facts of them. What `get_all` and `search` return are current views: duplicates and superseded
facts are behind them. `delete` erases for real, `update` keeps the old text in the log.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from roam.errors import InputError, NotFoundError
from roam.events import Record
from roam.integrations.mem0_arguments import (
    SCOPES,
    Messages,
    Scope,
    all_words,
    kind_of,
    messages_of,
    most_of,
    refuse_others,
    scope_named,
    scope_of,
    users_words,
)
from roam.integrations.versions import erase_item, item_id, pack, replace_text, texts_of, unpack
from roam.memory import Memory
from roam.records import Decision, View
from roam.relations import Relation
from roam.validation import time_text

MOST = 20  # results of a search, as in mem0
WIDE = 100_000  # tokens: what is returned is bounded by top_k
Extract = Callable[[Sequence[Mapping[str, Any]]], Sequence[str]]


class Mem0Memory:
    """Facts by user, agent or run.

    The memory belongs to the first that is given of user, agent and run; the others are kept with each fact and narrow
    down what is returned. Facts of one user are consolidated across that user's agents and runs.
    """

    def __init__(self, memory: Memory, *, extract: Extract | None = None) -> None:
        """`extract` makes facts of messages; without it every message of the user is one fact."""
        self.memory, self._extract = memory, extract or users_words

    @classmethod
    def open(cls, path: str | Path, *, extract: Extract | None = None, **settings: Any) -> Self:
        """Open a store; takes what `Memory.open` takes."""
        return cls(Memory.open(path, **settings), extract=extract)

    def close(self) -> None:
        """Close the store."""
        self.memory.close()

    def add(
        self,
        messages: Messages,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        infer: bool = True,
        timestamp: str | None = None,
        **others: Any,
    ) -> dict[str, list[dict[str, Any]]]:
        """Store facts; returns `{"results": [{"id", "memory", "event"}]}`.

        `event` is ADD for a new memory, UPDATE for one that supersedes or refines others (`previous_memory`), NONE for
        a fact that is known already; `id` then is that of the memory that stands for it. With `infer=False` nothing
        is run through `extract`.

        Raises:
            InputError: no scope, bad input, or what this store does not have (`expiration_date`, `prompt`, ...).
        """
        refuse_others("add", others)
        scope = scope_named(user_id, agent_id, run_id)
        given = messages_of(messages)
        facts = (self._extract if infer else all_words)(given)
        source = pack({**scope.extras, **({"metadata": dict(metadata)} if metadata else {})})
        results = []
        for fact in facts:
            decision = self.memory.add(
                fact, user=scope.owner, observed_at=timestamp, source=source, id=str(uuid.uuid4())
            )
            results.append(self._result(fact, decision))
        return {"results": results}

    def get(self, memory_id: str) -> dict[str, Any] | None:
        """Return one memory, or None."""
        texts = texts_of(self.memory, memory_id)
        if not texts or texts[-1].primary_id is None:
            return None
        last = texts[-1]
        owner = last.observation.user
        view = next((view for view in self.memory.primaries(user=owner) if view.id == last.observation.id), None)
        return self._item(last, last.observation.text if view is None else view.text)

    def get_all(
        self,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        filters: Mapping[str, Any] | None = None,
        top_k: int | None = None,
        limit: int | None = None,
        **others: Any,
    ) -> dict[str, list[dict[str, Any]]]:
        """List current memories in arrival order: all, or `top_k` of them (`limit` is mem0's earlier name of it)."""
        refuse_others("get_all", others)
        most = most_of(top_k, limit)
        scope = scope_of(filters, user_id, agent_id, run_id)
        found = [
            self._item(record, view.text)
            for view in self.memory.primaries(user=scope.owner)
            if (record := self._seen(view, scope)) is not None
        ]
        return {"results": found[:most]}

    def search(
        self,
        query: str,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        filters: Mapping[str, Any] | None = None,
        top_k: int | None = None,
        threshold: float | None = None,
        limit: int | None = None,
        **others: Any,
    ) -> dict[str, list[dict[str, Any]]]:
        """Find what answers a question, 20 results at most unless `top_k` (earlier: `limit`) says otherwise.

        `threshold` is the least cosine of a result.
        """
        refuse_others("search", others)
        most = most_of(top_k, limit)
        scope = scope_of(filters, user_id, agent_id, run_id)
        views = {view.id: view for view in self.memory.primaries(user=scope.owner)}
        results: list[dict[str, Any]] = []
        for hit in self.memory.search(query, user=scope.owner, budget=WIDE).hits:
            if hit.id not in views or (threshold is not None and hit.score < threshold):
                continue
            record = self._seen(views[hit.id], scope)
            if record is not None:
                results.append({**self._item(record, hit.text), "score": hit.score})
        return {"results": results[: MOST if most is None else most]}

    def update(
        self,
        memory_id: str,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        data: str | None = None,
        **others: Any,
    ) -> dict[str, str]:
        """Replace a memory's text, its metadata, or both; the old text stays in the log.

        `data` is mem0's earlier name of `text`.

        Raises:
            NotFoundError: an unknown memory.
            InputError: neither a text nor metadata, or two texts.
        """
        refuse_others("update", others)
        if text is not None and data is not None:
            raise InputError("text and data are both given: they are two names of the new text, give one")
        new = data if text is None else text
        if new is None and metadata is None:
            raise InputError("nothing to update: give text, metadata or both")
        last = self._known(memory_id)[-1].observation
        extras = unpack(last.source)
        if metadata is not None:
            extras["metadata"] = dict(metadata)
        told = time_text(last.observed_at) if new is None else None
        kept = last.text if new is None else new
        replace_text(self.memory, item_id(memory_id), kept, user=last.user, observed_at=told, source=pack(extras))
        return {"message": "Memory updated successfully!"}

    def delete(self, memory_id: str) -> dict[str, str]:
        """Erase a memory with all its former texts.

        Raises:
            NotFoundError: an unknown memory.
        """
        self._known(memory_id)
        erase_item(self.memory, memory_id)
        return {"message": "Memory deleted successfully!"}

    def delete_all(
        self, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None
    ) -> dict[str, str]:
        """Erase all memories of a scope: every byte, and how many is said."""
        scope = scope_named(user_id, agent_id, run_id)
        if not scope.extras:
            count = self.memory.erase_user(scope.owner).observations
            return {"message": f"{count} memories deleted successfully!"}
        doomed = [record.observation.id for record in self._records(scope.owner) if scope.holds(record)]
        for observation_id in doomed:
            self.memory.erase(observation_id, user=scope.owner)
        return {"message": f"{len(doomed)} memories deleted successfully!"}

    def history(self, memory_id: str) -> list[dict[str, Any]]:
        """Return what happened to a memory's text, oldest first."""
        rows: list[dict[str, Any]] = []
        old: str | None = None
        for record in self._known(memory_id):
            text = record.observation.text
            rows.append({
                "id": record.observation.id,
                "memory_id": memory_id,
                "old_memory": old,
                "new_memory": text,
                "event": "ADD" if old is None else "UPDATE",
                "created_at": record.recorded_at.isoformat(),
                "updated_at": record.recorded_at.isoformat(),
                "is_deleted": False,
            })  # fmt: skip
            old = text
        return rows

    def _known(self, memory_id: str) -> list[Record]:
        texts = texts_of(self.memory, memory_id)
        if not texts:
            raise NotFoundError(f"no memory {memory_id!r}: use an id that add, search or get_all returned")
        return texts

    def _records(self, owner: str) -> Iterator[Record]:
        cursor = None
        while True:
            page = self.memory.page_observations(user=owner, cursor=cursor)
            yield from page.items
            cursor = page.next
            if cursor is None:
                return

    def _seen(self, view: View, scope: Scope) -> Record | None:
        """The record of a view that a scope sees: one of its facts was told there."""
        record = self.memory.get(view.id, user=scope.owner)
        members = (self.memory.get(member, user=scope.owner) for member in view.members)
        return record if any(scope.holds(member) for member in members) else None

    def _item(self, record: Record, text: str) -> dict[str, Any]:
        observation = record.observation
        extras = unpack(observation.source)
        told = (observation.observed_at or record.recorded_at).isoformat()
        item: dict[str, Any] = {"id": item_id(observation.id), "memory": text, "created_at": told}
        item["updated_at"] = record.recorded_at.isoformat()
        kind, owner = kind_of(observation.user)
        item[kind] = owner
        item.update({name: extras[name] for name in SCOPES if name in extras})
        item["metadata"] = extras.get("metadata")
        return item

    def _result(self, fact: str, decision: Decision) -> dict[str, Any]:
        memory_id = item_id(decision.primary_id)
        if decision.primary_id != decision.observation_id:
            return {"id": memory_id, "memory": self._text(decision.primary_id), "event": "NONE"}
        if decision.relation is Relation.IND:
            return {"id": memory_id, "memory": fact, "event": "ADD"}
        previous = "; ".join(self._text(id) for id in decision.demoted_ids)
        return {"id": memory_id, "memory": fact, "event": "UPDATE", "previous_memory": previous}

    def _text(self, observation_id: str) -> str:
        return self.memory.get(observation_id).observation.text
