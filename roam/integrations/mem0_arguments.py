"""What calls of mem0's interface are given: whose memory, which messages, and what means nothing here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roam.errors import InputError
from roam.events import Record
from roam.integrations.versions import unpack

SCOPES = ("user_id", "agent_id", "run_id")
Messages = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]

FOREIGN = {
    "expiration_date": "facts are kept until they are erased",
    "show_expired": "facts do not expire",
    "memory_type": "there is one kind of memory",
    "prompt": "no LLM is called; pass `extract` when the store is opened",
    "rerank": "results are ranked by cosine alone",
    "explain": "`memory.explain(id)` tells why a fact is where it is",
    "reference_date": "`memory.as_of(time, user=...)` tells what was current then",
}
"""What mem0 can be asked for and this store cannot, and why."""


class Scope:
    """Whose memory, and what narrows it down."""

    def __init__(self, owner: str, extras: Mapping[str, str], metadata: Mapping[str, Any]) -> None:
        self.owner, self.extras, self._metadata = owner, dict(extras), dict(metadata)

    def holds(self, record: Record) -> bool:
        """Whether a fact was told there."""
        told = unpack(record.observation.source)
        kept = told.get("metadata") or {}
        return all(told.get(name) == value for name, value in self.extras.items()) and all(
            kept.get(name) == value for name, value in self._metadata.items()
        )


def refuse_others(method: str, others: Mapping[str, Any]) -> None:
    """Arguments of mem0 that mean nothing here may be left at what asks for nothing; anything else is refused."""
    for name, value in others.items():
        if name not in FOREIGN:
            raise InputError(f"{method} takes no {name!r}")
        if value:
            raise InputError(f"{name} is {value!r:.80}: {FOREIGN[name]}, so leave it out")


def most_of(top_k: int | None, limit: int | None) -> int | None:
    """Return how many results are wanted, by the name of today or of yesterday; None for all."""
    most = limit if top_k is None else top_k
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise InputError(f"top_k is {most!r}: give a whole number of at least 1")
    return most


def scope_named(
    user_id: str | None, agent_id: str | None, run_id: str | None, metadata: Mapping[str, Any] | None = None
) -> Scope:
    """Return the scope of three names; at least one is needed."""
    given = {name: value for name, value in zip(SCOPES, (user_id, agent_id, run_id), strict=True) if value is not None}
    if not given:
        raise InputError("no scope: give at least one of user_id, agent_id and run_id")
    kind = next(iter(given))
    owner = given.pop(kind)
    if kind != "user_id":
        owner = f"{kind}:{owner}"
    elif owner.startswith(("agent_id:", "run_id:")):
        raise InputError(f"user_id is {owner!r}: a user's name may not begin with 'agent_id:' or 'run_id:'")
    return Scope(owner, given, metadata or {})


def scope_of(filters: Mapping[str, Any] | None, user_id: str | None, agent_id: str | None, run_id: str | None) -> Scope:
    """Return the scope of a call that may name it in `filters`, with metadata that must be equal."""
    wanted = dict(filters or {})
    given = zip(SCOPES, (user_id, agent_id, run_id), strict=True)
    user, agent, run = (wanted.pop(name, None) if value is None else value for name, value in given)
    plain = not any(
        isinstance(value, (Mapping, list)) or value == "*" for value in (*wanted.values(), user, agent, run)
    )
    if not plain or {"AND", "OR", "NOT"} & set(wanted):
        raise InputError(
            f"filters are {sorted(wanted)}: plain equality of user_id, agent_id, run_id and metadata is taken"
        )
    return scope_named(user, agent, run, metadata=wanted)


def kind_of(owner: str) -> tuple[str, str]:
    """Return which of the three names an owner is, and the name."""
    kind, colon, name = owner.partition(":")
    return (kind, name) if colon and kind in SCOPES else ("user_id", owner)


def messages_of(messages: Messages) -> list[Mapping[str, Any]]:
    """Return messages as a list, each with its role and its text.

    Raises:
        InputError: what is no text, no message and no list of messages, or a message of the user without text.
    """
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    given = [messages] if isinstance(messages, Mapping) else messages
    if not isinstance(given, Sequence):
        raise InputError(f"messages is a {type(messages).__name__}: give a text, a message or a list of messages")
    texts = [_text_of(message) for message in given]
    return [{**message, "content": text} for message, text in zip(given, texts, strict=True)]


def _text_of(message: Any) -> str:
    role = message.get("role") if isinstance(message, Mapping) else None
    if not isinstance(role, str):
        raise InputError(f"message {message!r:.80} has no role: give {{'role': 'user', 'content': 'I moved.'}}")
    content = message.get("content")
    if isinstance(content, list):  # parts, of which pictures and the like hold no fact that could be kept as text
        parts = [part.get("text") for part in content if isinstance(part, Mapping) and part.get("type") == "text"]
        content = " ".join(part for part in parts if isinstance(part, str))
    if isinstance(content, str) and content.strip():
        return content
    if role == "user":
        raise InputError(f"message {message!r:.80} holds no text: give its content as text")
    return ""  # e.g. an assistant's call of a tool


def users_words(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the text of each message of the user."""
    return [message["content"] for message in messages if message["role"] == "user"]


def all_words(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the text of every message but the system's."""
    return [message["content"] for message in messages if message["role"] != "system" and message["content"]]
