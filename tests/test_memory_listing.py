"""Lists that are paged: everything once, whatever happens between two pages; and users kept apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from roam.errors import InputError, NotFoundError
from roam.listing import Page
from roam.memory import Memory
from roam.records import Role
from roam.relations import Relation
from tests.stubs import HashEmbedder, JoinFuser, ScriptedRelations

pytestmark = pytest.mark.both_back_ends

T = TypeVar("T")


def open_memory() -> Memory:
    def relate(old: str, new: str) -> Relation:
        return Relation.CON if old.split()[1] == new.split()[1] else Relation.IND

    return Memory.open(
        ":memory:", manager=ScriptedRelations(rule=relate), embedder=HashEmbedder(), fusion=JoinFuser(), k=50
    )


def fill(memory: Memory) -> None:
    """Seven subjects, four facts each, two users."""
    memory.add_many(
        [{"text": f"Subject {n % 7} is {n}.", "user": user, "id": f"{user}-{n}"} for n in range(28) for user in "uv"]
    )


def walk(page: Callable[[str | None], Page[T]]) -> list[T]:
    items: list[T] = []
    cursor = None
    while True:
        shown = page(cursor)
        items += shown.items
        cursor = shown.next
        if cursor is None:
            return items


@pytest.mark.parametrize("limit", [1, 3, 7, 28, 100])
def test_pages_list_everything_once_and_in_order(limit: int) -> None:
    with open_memory() as memory:
        fill(memory)
        memory.retract("u-27")
        views = memory.primaries(user="u")
        assert walk(lambda cursor: memory.page_primaries(user="u", limit=limit, cursor=cursor)) == views
        log = memory.history(user="u")
        assert walk(lambda cursor: memory.page_history(user="u", limit=limit, cursor=cursor)) == log
        for view in views:
            pages = walk(lambda cursor, id=view.id: memory.page_evidence(id, limit=limit, cursor=cursor))
            assert sorted(entry.id for entry in pages) == sorted(entry.id for entry in memory.evidence(view.id))
        records = walk(lambda cursor: memory.page_observations(user="u", limit=limit, cursor=cursor))
        assert records == [memory.get(f"u-{n}") for n in range(28)]
        assert [entry.role for entry in records].count(Role.PRIMARY) == 7
        assert records[-1].role is None
        assert memory.users() == ["u", "v"]


def test_facts_that_come_and_go_between_pages_shift_nothing() -> None:
    with open_memory() as memory:
        fill(memory)
        first = memory.page_primaries(user="u", limit=3)
        memory.add("Subject 8 is new.", user="u", id="late")
        memory.erase(first.items[0].id)
        memory.erase(first.items[-1].id)  # what the cursor stands on
        rest = walk(lambda cursor: memory.page_primaries(user="u", limit=2, cursor=cursor or first.next))
        assert [view.id for view in rest] == ["u-24", "u-25", "u-26", "u-27", "late"]


@pytest.mark.parametrize(
    "cursor", ["", "history:3", "primaries:", "primaries:x", "primaries:-1", "primaries:\u0663", 3]
)
def test_a_cursor_of_another_list_is_refused(cursor: object) -> None:
    with open_memory() as memory:
        memory.add("Subject 1 is red.", user="u", id="red")
        with pytest.raises(InputError, match="cursor is"):
            memory.page_primaries(user="u", cursor=cursor)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="limit is 0"):
            memory.page_history(user="u", limit=0)


@pytest.mark.parametrize("user", ["", " ", " u", "u ", "u\n", "u\x00", None, 1, b"u", ["u"], "x" * 201])
def test_S10_every_list_refuses_an_odd_user(user: object) -> None:
    with open_memory() as memory:
        for call in (
            memory.page_primaries,
            memory.page_observations,
            memory.page_history,
            memory.primaries,
            memory.history,
            memory.reviews,
            memory.replay,
        ):
            with pytest.raises(InputError, match=r"^user "):
                call(user=user)  # type: ignore[arg-type]


def test_S10_lists_of_one_never_show_ten() -> None:
    with open_memory() as memory:
        id = memory.add("Subject 1 is ten's.", user="10", id="ten").observation_id
        for user in ("1", "01", "10.0", "\uff11\uff10", "%", "1_", "10'--"):
            assert memory.page_primaries(user=user).items == ()
            assert memory.page_observations(user=user).items == ()
            assert memory.page_history(user=user).items == ()
            assert memory.replay(user=user).views_then == ()
            for call in (memory.get, memory.page_evidence, memory.explain, memory.retract, memory.erase):
                with pytest.raises(NotFoundError):
                    call(id, user=user)
        assert memory.get(id, user="10").observation.text == "Subject 1 is ten's."
