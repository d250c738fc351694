"""`RoamStore`: the store as LangGraph's `BaseStore` (package langgraph-checkpoint, interface of version 2 and later).

    from langgraph.graph import StateGraph
    from roam import Memory
    from roam.integrations.langgraph import RoamStore

    graph = StateGraph(...).compile(store=RoamStore(Memory.open("memory.db")))

A namespace is a user, a value is one fact: `{"text": "The user moved to Ghent."}`, optionally with `observed_at` and
small fields of your own. `get` returns what was put under a key; `search` returns current views: facts that were
superseded or merged are not found again, which is what the store is for.
"""

from __future__ import annotations

import asyncio
import hashlib
import operator as operator_of
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote, unquote

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)

from roam.errors import InputError
from roam.events import Record
from roam.integrations.versions import erase_item, item_id, pack, replace_text, texts_of, unpack
from roam.memory import Memory
from roam.records import View
from roam.validation import time_text

WIDE = 100_000
"""Budget in tokens of a search: what is returned is bounded by `limit`, not by tokens."""
_TIME = "observed_at"
_SAME = {"$eq": True, "$ne": False}
_ORDER: dict[str, Callable[[float, float], bool]] = {
    "$gt": operator_of.gt, "$gte": operator_of.ge, "$lt": operator_of.lt, "$lte": operator_of.le,
}  # fmt: skip


class RoamStore(BaseStore):
    """Facts by namespace and key over a `Memory`.

    Args:
        memory: an open store; it is not closed by this one.
        field: the field of a value that holds the fact.
    """

    supports_ttl = False

    def __init__(self, memory: Memory, *, field: str = "text") -> None:
        self.memory, self.field = memory, field

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations in their order.

        Raises:
            InputError: a value that is no fact, a time to live, or a filter that is not understood.
        """
        return [self._run(op) for op in ops]

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations in their order, on a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _run(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            return self._get(op)
        if isinstance(op, PutOp):
            self._put(op)
            return None
        if isinstance(op, SearchOp):
            return self._search(op)
        if isinstance(op, ListNamespacesOp):
            return self._namespaces(op)
        raise InputError(f"operation {type(op).__name__}: GetOp, PutOp, SearchOp and ListNamespacesOp are known")

    def _get(self, op: GetOp) -> Item | None:
        user = to_user(op.namespace)
        texts = texts_of(self.memory, _id(user, op.key), user)
        if not texts or texts[-1].primary_id is None:
            return None
        first, last = texts[0], texts[-1]
        return Item(
            value=self._value(last, last.observation.text),
            key=op.key,
            namespace=op.namespace,
            created_at=first.recorded_at,
            updated_at=last.recorded_at,
        )

    def _put(self, op: PutOp) -> None:
        user = to_user(op.namespace)
        if op.value is None:
            erase_item(self.memory, _id(user, op.key), user)
            return
        if getattr(op, "ttl", None) is not None:
            raise InputError("ttl is set: this store keeps facts until they are erased, so leave it out")
        if getattr(op, "index", None) is not None:
            raise InputError("index is set: every fact is indexed by its text, so leave it out")
        fields = dict(op.value)
        text = fields.pop(self.field, None)
        if not isinstance(text, str):
            raise InputError(
                f"value has the fields {sorted(op.value)}, and {self.field!r} is no text: put one fact a key, "
                f"{{{self.field!r}: 'The user ...'}}, or name another field with RoamStore(memory, field=...)"
            )
        observed_at = fields.pop(_TIME, None)
        replace_text(self.memory, _id(user, op.key), text, user=user, observed_at=observed_at, source=pack(fields))

    def _search(self, op: SearchOp) -> list[SearchItem]:
        found = [item for user in self._users_under(op.namespace_prefix) for item in self._of_user(user, op)]
        if op.query:
            found.sort(key=lambda item: -(item.score or 0.0))
        return found[op.offset : op.offset + op.limit]

    def _of_user(self, user: str, op: SearchOp) -> Iterator[SearchItem]:
        views = {view.id: view for view in self.memory.primaries(user=user)}
        ranked: list[tuple[View, float | None]] = [(view, None) for view in views.values()]
        if op.query:
            hits = self.memory.search(op.query, user=user, budget=WIDE).hits
            ranked = [(views[hit.id], hit.score) for hit in hits if hit.id in views]
        for view, score in ranked:
            record = self.memory.get(view.id, user=user)
            value = self._value(record, view.text)
            if matches(value, op.filter or {}):
                yield SearchItem(
                    namespace=to_namespace(user),
                    key=_key(view.id),
                    value=value,
                    created_at=record.recorded_at,
                    updated_at=max(self._times(view, user), default=record.recorded_at),
                    score=score,
                )

    def _times(self, view: View, user: str) -> Iterator[datetime]:
        return (self.memory.get(member, user=user).recorded_at for member in view.members)

    def _value(self, record: Record, text: str) -> dict[str, Any]:
        told = time_text(record.observation.observed_at)
        value = {self.field: text, **unpack(record.observation.source)}
        return value if told is None else {**value, _TIME: told}

    def _users_under(self, prefix: tuple[str, ...]) -> list[str]:
        return [user for user in self.memory.users() if to_namespace(user)[: len(prefix)] == tuple(prefix)]

    def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        conditions = op.match_conditions or ()
        found: dict[tuple[str, ...], None] = {}
        for user in self.memory.users():
            namespace = to_namespace(user)
            if all(_fits(namespace, condition) for condition in conditions):
                found[namespace[: op.max_depth] if op.max_depth else namespace] = None
        return sorted(found)[op.offset : op.offset + op.limit]


def to_user(namespace: tuple[str, ...]) -> str:
    """Return the user that a namespace stands for: its labels, quoted and joined by `/`."""
    if not namespace:
        raise InputError("namespace is empty: give at least one label, e.g. ('maya',)")
    return "/".join(quote(label, safe=" @:") for label in namespace)


def to_namespace(user: str) -> tuple[str, ...]:
    """Return the namespace of a user."""
    return tuple(unquote(label) for label in user.split("/"))


def matches(value: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a value passes a filter: `{field: what}`, or `{field: {operator: what}}`.

    Operators are $eq, $ne, $gt, $gte, $lt and $lte; as in LangGraph's own stores the last four compare numbers. A field
    that is missing or no number passes none of them.
    """
    for field, test in wanted.items():
        tests = test if isinstance(test, Mapping) else {"$eq": test}
        for operator, operand in tests.items():
            if operator in _SAME:
                passed = (value.get(field) == operand) is _SAME[operator]
            elif operator in _ORDER:
                passed = _ordered(value.get(field), operator, operand)
            else:
                raise InputError(f"filter operator {operator!r}: {', '.join([*_SAME, *_ORDER])} are understood")
            if not passed:
                return False
    return True


def _ordered(found: Any, operator: str, operand: Any) -> bool:
    if isinstance(operand, bool) or not isinstance(operand, (int, float)):
        raise InputError(f"filter {operator} {operand!r}: give a number")
    return isinstance(found, (int, float)) and not isinstance(found, bool) and _ORDER[operator](found, operand)


def _fits(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    path = tuple(condition.path)
    if len(path) > len(namespace):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[-len(path) :]
    return all(wanted in ("*", label) for wanted, label in zip(path, part, strict=True))


def _id(user: str, key: str) -> str:
    # Keys are unique within a namespace only, ids within the whole store.
    return f"{key}@{hashlib.blake2b(user.encode(), digest_size=6).hexdigest()}"


def _key(observation_id: str) -> str:
    return item_id(observation_id).rpartition("@")[0] or observation_id
