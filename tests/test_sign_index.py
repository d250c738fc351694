"""Search of very large users by sign bits: the same results as comparing every vector, whoever writes in between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roam.memory import Memory
from roam.relations import Relation
from roam.sign_index import LEAST_CANDIDATES, Bits
from roam.vectors import VectorKind
from tests.stubs import HashEmbedder, JoinFuser, ScriptedRelations

pytestmark = pytest.mark.both_back_ends
KINDS = (VectorKind.ATOMIC, VectorKind.VIEW)


def relate(old: str, new: str) -> Relation:
    return Relation.CON if old.split()[1] == new.split()[1] else Relation.IND


def open_memory(path: str | Path = ":memory:", exact_up_to: int = 4) -> Memory:
    memory = Memory.open(path, manager=ScriptedRelations(rule=relate), embedder=HashEmbedder(), fusion=JoinFuser())
    memory._store.signs.exact_up_to = exact_up_to
    return memory


def fill(memory: Memory, subjects: int = 12) -> None:
    memory.add_many([{"text": f"Subject {n} is new.", "user": "u", "id": f"{n}"} for n in range(subjects)])


def held(memory: Memory, kind: VectorKind) -> list[int] | None:
    """The sequences that the index would compare, all of them; None when it is not used."""
    vector = memory._embedder.embed(["Subject"])[0]
    with memory._reading("u") as store:
        found = store.signs.candidates("u", kind.value, vector, 10_000)
    return None if found is None else sorted(found)


def stored(memory: Memory, kind: VectorKind) -> list[int]:
    with memory._reading("u") as store:
        rows = store.rows("SELECT sequence FROM vectors WHERE user = 'u' AND kind = ?", (kind.value,))
    return sorted(row[0] for row in rows)


CHANGES: dict[str, Callable[[Memory], object]] = {
    "a new fact": lambda memory: memory.add("Subject 99 is new.", user="u"),
    "a change of state": lambda memory: memory.add("Subject 3 is old.", user="u"),
    "a batch": lambda memory: memory.add_many([{"text": f"Subject {n} is old.", "user": "u"} for n in range(5)]),
    "a retraction": lambda memory: memory.retract("4"),
    "an undone retraction": lambda memory: memory.undo(memory.retract("4").id),
    "a verdict": lambda memory: memory.decide("7", "2", "EQV"),
    "an erasure": lambda memory: memory.erase("5"),
    "a replay": lambda memory: memory.apply(memory.replay(user="u", thresholds={"CON": 1.0})),
    "a repair": lambda memory: memory._reviser.rebuild("u"),
    "another user's fact": lambda memory: memory.add("Subject 1 is mine.", user="v"),
}


@pytest.mark.integration
@pytest.mark.parametrize("change", CHANGES)
def test_the_index_follows_every_change_of_this_and_another_connection(tmp_path: Path, change: str) -> None:
    with open_memory(tmp_path / "m.db") as memory, open_memory(tmp_path / "m.db") as other:
        fill(memory)
        memory.add("Subject 3 is middle-aged.", user="u")
        for kind in KINDS:
            assert held(memory, kind) == held(other, kind) == stored(memory, kind)
        CHANGES[change](memory)
        for kind in KINDS:
            assert held(memory, kind) == held(other, kind) == stored(memory, kind)


@pytest.mark.integration
def test_a_user_who_is_gone_or_has_become_small_is_searched_exactly(tmp_path: Path) -> None:
    with open_memory(tmp_path / "m.db") as memory, open_memory(tmp_path / "m.db") as other:
        fill(memory)
        assert held(memory, VectorKind.VIEW) == held(other, VectorKind.VIEW) == stored(memory, VectorKind.VIEW)
        memory.erase_user("u")
        assert held(memory, VectorKind.VIEW) is held(other, VectorKind.VIEW) is None
        fill(memory, 3)
        assert held(memory, VectorKind.VIEW) is None
        assert len(other.search("Subject", user="u").hits) == 3


@pytest.mark.integration
def test_results_are_those_of_comparing_all() -> None:
    queries = [f"Subject {n} is what?" for n in range(12)]
    found = []
    for exact_up_to in (4, 10_000):
        with open_memory(exact_up_to=exact_up_to) as memory:
            fill(memory)
            for n in range(0, 12, 3):
                memory.add(f"Subject {n} is old.", user="u", id=f"old-{n}")
            found.append([[(hit.id, hit.score) for hit in memory.search(query, user="u").hits] for query in queries])
            assert (held(memory, VectorKind.VIEW) is None) == (exact_up_to > 12)
    assert found[0] == found[1]


@pytest.mark.integration
def test_bits_are_the_signs_of_the_stored_vectors() -> None:
    with open_memory() as memory, memory._reading("u") as store:
        for dimension in (8, 24, 64):
            vectors = np.random.default_rng(dimension).standard_normal((5, dimension)).astype(np.float32)
            sql = f"SELECT {store.db.signs.replace('embedding', '?')}"
            rows = [store.rows(sql, (store.db.to_sql(vector),))[0][0] for vector in vectors]
            assert np.array_equal(store.db.unpack_signs(rows), np.packbits(vectors > 0, axis=1, bitorder="little"))


@pytest.mark.sqlite
@pytest.mark.unit
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(0, 255)), max_size=80), st.integers(1, 40))
def test_bits_are_a_table_of_the_nearest(changes: list[tuple[bool, int, int]], wanted: int) -> None:
    bits, table = Bits(np.zeros(0, dtype=np.int64), np.zeros((0, 1), dtype=np.uint8)), dict[int, int]()
    for put, sequence, value in changes:
        if put:
            bits.put(sequence, np.array([value], dtype=np.uint8))
            table[sequence] = value
        else:
            bits.drop(sequence)
            table.pop(sequence, None)
    found = bits.nearest(np.array([0b1011], dtype=np.uint8), wanted)
    distances = {sequence: (value ^ 0b1011).bit_count() for sequence, value in table.items()}
    assert len(found) == len(set(found)) == min(wanted, len(table))
    assert sorted(distances[sequence] for sequence in found) == sorted(distances.values())[:wanted]


@pytest.mark.sqlite
@pytest.mark.integration
def test_what_is_held_is_bounded_and_used_longest_ago_goes_first() -> None:
    with open_memory() as memory:
        for user in "abc":
            memory.add_many([{"text": f"Subject {n} is {user}.", "user": user} for n in range(10)])
        signs = memory._store.signs
        signs._most_held = 25
        vector = memory._embedder.embed(["Subject"])[0]
        for user in "abac":
            assert signs.candidates(user, "view", vector, 1) is not None
        assert list(signs._held) == ["a", "c"]


@pytest.mark.sqlite
@pytest.mark.unit
def test_the_candidates_hold_the_true_nearest() -> None:
    """Sign bits are a coarse measure: the true nearest must be among the candidates nearly always."""
    generator = np.random.default_rng(0)
    centres = generator.standard_normal((60, 384))
    vectors = centres[generator.integers(60, size=20_000)] + generator.standard_normal((20_000, 384))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    packed = np.packbits(vectors > 0, axis=1, bitorder="little")
    bits = Bits(np.arange(len(vectors)), packed)
    kept = []
    for query in vectors[:50] + generator.standard_normal((50, 384)) * 0.02:
        true = set(np.argsort(vectors @ -query)[:10].tolist())
        found = bits.nearest(np.packbits(query > 0, bitorder="little"), LEAST_CANDIDATES)
        kept.append(len(true & set(found)) / 10)
    assert np.mean(kept) > 0.98
