"""Adding, searching and reading: input checks, budget, counters, thresholds, fusion faults, files."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import apsw
import numpy as np
import pytest

from roam.errors import AdapterError, InputError, NotFoundError, StoreError
from roam.events import EventKind
from roam.memory import Memory
from roam.records import Observation, Pair, Role
from roam.relations import Relation
from roam.schema import SCHEMA_VERSION, statements
from roam.sqlite import APPLICATION_ID, WORDS
from tests.stubs import BrokenFuser, HashEmbedder, JoinFuser, ScriptedRelations

pytestmark = pytest.mark.both_back_ends

ROWS = ("observations", "events", "judgements", "state", "vectors", "review")
PARIS, ROME, TEA = "Maya lives in Paris.", "Maya lives in Rome.", "Maya likes tea."


def open_memory(script: object = None, path: str | Path = ":memory:", **settings: object) -> Memory:
    model = script if isinstance(script, ScriptedRelations) else ScriptedRelations(script)  # type: ignore[arg-type]
    settings.setdefault("fusion", JoinFuser())
    return Memory.open(path, manager=model, embedder=HashEmbedder(), **settings)  # type: ignore[arg-type]


@pytest.fixture
def memory() -> Iterator[Memory]:
    with open_memory({(PARIS, ROME): "CON"}) as memory:
        yield memory


# Input --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        (" \n\t ", "empty"),
        ("a\x00b", "U\\+0000"),
        ("a\x1bb", "U\\+001B"),
        ("x" * 2001, "2001 characters"),
        ("\u200b", "no visible"),
        (None, "NoneType"),
        (b"bytes", "bytes"),
    ],
)
def test_bad_text_is_refused_and_nothing_is_stored(memory: Memory, text: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        memory.add(text, user="u")  # type: ignore[arg-type]
    assert memory.primaries(user="u") == []
    assert memory.history(user="u") == []


@pytest.mark.parametrize("user", ["", " u", "u\n", None, 7, "x" * 201])
def test_bad_user_is_refused(memory: Memory, user: object) -> None:
    for call in (
        lambda: memory.add(TEA, user=user),  # type: ignore[arg-type]
        lambda: memory.search("tea", user=user),  # type: ignore[arg-type]
        lambda: memory.primaries(user=user),  # type: ignore[arg-type]
        lambda: memory.erase_user(user),  # type: ignore[arg-type]
    ):
        with pytest.raises(InputError, match=r"^user "):
            call()


@pytest.mark.parametrize("time", ["yesterday", "2026-13-01", 20260301, ""])
def test_bad_time_is_refused(memory: Memory, time: object) -> None:
    with pytest.raises(InputError, match="observed_at is"):
        memory.add(TEA, user="u", observed_at=time)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC)),
        (date(2026, 3, 1), datetime(2026, 3, 1, tzinfo=UTC)),
        ("2026-03-01T10:00:00+02:00", datetime(2026, 3, 1, 8, tzinfo=UTC)),
        (datetime(2026, 3, 1, 10), datetime(2026, 3, 1, 10, tzinfo=UTC)),
        (None, None),
    ],
)
def test_C03_time_forms(memory: Memory, given: object, kept: datetime | None) -> None:
    decision = memory.add(TEA, user="u", observed_at=given, source="chat-1", id="tea")  # type: ignore[arg-type]
    stored = memory.get(decision.observation_id).observation
    assert (stored.id, stored.observed_at, stored.source) == ("tea", kept, "chat-1")


def test_text_is_normalised(memory: Memory) -> None:
    id = memory.add("  Maya's cafe\u0301 \n is\tlarge ", user="u").observation_id
    assert memory.get(id).observation.text == "Maya's caf\u00e9 is large"


def test_unknown_ids_and_other_users_are_not_found(memory: Memory) -> None:
    id = memory.add(TEA, user="u").observation_id
    for call in (memory.get, memory.evidence, memory.explain, memory.retract, memory.erase):
        with pytest.raises(NotFoundError, match="no observation 'nowhere'"):
            call("nowhere")
        with pytest.raises(NotFoundError, match="of user 'v'"):
            call(id, user="v")
    with pytest.raises(NotFoundError, match="no event"):
        memory.undo("nowhere")


def test_same_id_again_is_exact_and_other_content_is_refused(memory: Memory) -> None:
    first = memory.add(TEA, user="u", id="x", observed_at="2026-01-01")
    assert memory.add(TEA, user="u", id="x", observed_at="2026-01-01") == first
    assert len(memory.history(user="u")) == 1
    with pytest.raises(InputError, match="'x' is taken"):
        memory.add(ROME, user="u", id="x")


@pytest.mark.parametrize(
    "settings", [{"k": 0}, {"k": True}, {"floor": 2}, {"fusion": "llm"}, {"thresholds": {"CON": 3}}]
)
def test_bad_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(InputError):
        open_memory(**settings)


def test_a_manager_or_embedder_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="manager is int"):
        Memory.open(":memory:", manager=3, embedder=HashEmbedder())
    with pytest.raises(InputError, match="embedder is str"):
        Memory.open(":memory:", manager=ScriptedRelations(), embedder="minilm")  # type: ignore[arg-type]


def test_closed_memory_is_refused(memory: Memory) -> None:
    memory.close()
    memory.close()
    with pytest.raises(InputError, match="closed"):
        memory.add(TEA, user="u")


# Passes of the model ------------------------------------------------------------------------------------------------


def test_S02_one_pass_with_candidates_none_without() -> None:
    model = ScriptedRelations()
    with open_memory(model, k=3) as memory:
        memory.add("Fact number 0.", user="u")
        assert memory.stats.forward_passes == 0
        for number in range(1, 6):
            memory.add(f"Fact number {number}.", user="u")
            assert memory.stats.forward_passes == number == len(model.calls)
            assert len(model.calls[-1]) == min(number, 3)
        memory.add("Fact number 1.", user="u")  # an exact duplicate
        assert (memory.stats.forward_passes, memory.stats.exact_matches, memory.stats.llm_calls) == (5, 1, 0)


def test_a_known_pair_is_not_classified_again(tmp_path: Path) -> None:
    model = ScriptedRelations({(PARIS, ROME): "CON"})
    with open_memory(model, tmp_path / "m.db") as memory:
        memory.add(PARIS, user="u")
        memory.retract(memory.add(ROME, user="u").observation_id)
    assert len(model.calls) == 1
    with open_memory(model, tmp_path / "m.db") as memory:
        assert memory.add(ROME, user="u").relation is Relation.CON
        assert (len(model.calls), memory.stats.cached_pairs) == (1, 1)
        memory.add(PARIS, user="v")
        memory.add(ROME, user="v")  # judgements belong to one user: erasing one leaves the other's alone
    assert len(model.calls) == 2
    other = ScriptedRelations({(PARIS, ROME): "IND"}, digest="other")
    with open_memory(other, tmp_path / "m.db") as memory:
        memory.retract(memory.history(user="v")[-1].observation_id or "")
        assert memory.add(ROME, user="v").relation is Relation.IND
    assert len(other.calls) == 1


def test_pairs_below_the_floor_are_not_compared() -> None:
    model = ScriptedRelations({(PARIS, TEA): "CON"})
    with open_memory(model, floor=0.99) as memory:
        memory.add(PARIS, user="u")
        assert memory.add(TEA, user="u").relation is Relation.IND
    assert model.calls == []


@pytest.mark.parametrize("rows", [np.ones((1, 4)), np.ones((1, 5)), np.full((1, 5), np.nan), np.ones((2, 5)) / 5])
def test_a_model_that_returns_rubbish_is_refused_and_nothing_is_stored(rows: np.ndarray) -> None:
    model = ScriptedRelations()
    with open_memory(model) as memory:
        memory.add(PARIS, user="u")
        model.predict_proba = lambda pairs: rows  # type: ignore[method-assign, assignment]
        with pytest.raises(AdapterError, match="nothing was stored"):
            memory.add(TEA, user="u")
        assert [view.text for view in memory.primaries(user="u")] == [PARIS]
        assert memory.verify().ok


def test_below_the_threshold_counts_as_ind_and_is_kept_for_review() -> None:
    with open_memory({(PARIS, ROME): ("CON", 0.7)}, thresholds={"CON": 0.8}) as memory:
        old = memory.add(PARIS, user="u").observation_id
        decision = memory.add(ROME, user="u")
        assert (decision.relation, decision.review) == (Relation.IND, (old,))
        assert decision.judgements[0].raw_relation is Relation.CON
        (pair,) = memory.reviews(user="u")
        assert (pair.decision_id, pair.new.id, pair.old.id) == (decision.id, decision.observation_id, old)
        assert (pair.relation, pair.new.text, pair.old.text) == (Relation.CON, ROME, PARIS)
        assert pair.probability == pytest.approx(0.7)
        assert len(memory.primaries(user="u")) == 2


# Fusion -------------------------------------------------------------------------------------------------------------


def test_fusion_off_keeps_atomic_texts() -> None:
    with open_memory({(PARIS, ROME): "CON"}, fusion="off") as memory:
        memory.add(PARIS, user="u")
        memory.add(ROME, user="u")
        assert [view.text for view in memory.primaries(user="u")] == [ROME]


@pytest.mark.parametrize("output", [RuntimeError("out of tokens"), [""], ["  "], [], None, [{"view": "x"}], "text"])
def test_F01_a_failing_fuser_leaves_observations_untouched(output: object) -> None:
    with open_memory({(PARIS, ROME): "CON"}, fusion=BrokenFuser(output)) as memory:
        old = memory.add(PARIS, user="u", observed_at="2026-01-01").observation_id
        new = memory.add(ROME, user="u", observed_at="2026-03-01").observation_id
        (view,) = memory.primaries(user="u")
        assert view.text == f"{PARIS} (2026-01-01); then: {ROME} (2026-03-01)"
        assert [memory.get(id).observation.text for id in (old, new)] == [PARIS, ROME]
        (event,) = [e for e in memory.history(user="u") if e.kind is EventKind.FUSION_FALLBACK]
        assert "broken" in str(event.detail)
        assert memory.stats.fusion_fallbacks == 1
        assert memory.verify().ok


def test_a_changed_view_is_found_by_its_new_text(memory: Memory) -> None:
    memory.add(PARIS, user="u")
    new = memory.add(ROME, user="u").observation_id
    hit = memory.search(f"{PARIS} -> {ROME}", user="u").hits[0]
    assert (hit.id, hit.text) == (new, f"{PARIS} -> {ROME}")
    assert hit.score == pytest.approx(1.0, abs=1e-5)


# Search -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [1, 4, 5, 6, 9, 11, 1000])
def test_context_never_exceeds_the_budget(memory: Memory, budget: int) -> None:
    for text in (PARIS, TEA, "Maya owns a cat."):
        memory.add(text, user="u")
    result = memory.search("Where does Maya live?", user="u", budget=budget)
    assert result.tokens == HashEmbedder().count_tokens(result.context) <= budget
    assert result.context == "\n".join(hit.text for hit in result.hits)
    assert result.tokens == sum(hit.tokens for hit in result.hits) == min(budget, 14)
    assert result.hits[0].text == PARIS[: len(result.hits[0].text)]


def test_search_limit_and_empty_user(memory: Memory) -> None:
    memory.add(PARIS, user="u")
    memory.add(TEA, user="u")
    assert len(memory.search("Maya", user="u", limit=1).hits) == 1
    assert memory.search("Maya", user="nobody").hits == ()
    for arguments in ({"budget": 0}, {"limit": 0}, {"budget": 1.5}):
        with pytest.raises(InputError):
            memory.search("Maya", user="u", **arguments)  # type: ignore[arg-type]


def test_R17_search_excludes_evidence_unless_asked(memory: Memory) -> None:
    old = memory.add(PARIS, user="u").observation_id
    new = memory.add(ROME, user="u").observation_id
    assert {hit.id for hit in memory.search(PARIS, user="u").hits} == {new}
    hits = {hit.id: hit.role for hit in memory.search(PARIS, user="u", include_evidence=True).hits}
    assert hits == {new: Role.PRIMARY, old: Role.EVIDENCE}


# Batches ------------------------------------------------------------------------------------------------------------


def test_add_many_takes_records_and_mappings_with_one_pass() -> None:
    model = ScriptedRelations({(PARIS, ROME): "CON"})
    with open_memory(model) as memory:
        decisions = memory.add_many(
            [Observation(PARIS, "u"), {"text": TEA, "user": "u"}, {"text": ROME, "user": "u", "source": "chat"}]
        )
        assert [decision.relation.value for decision in decisions] == ["IND", "IND", "CON"]
        assert len(model.calls) == 1
        assert memory.add_many([]) == []


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"text": "x"}, "observation 1: no 'user'"),
        ({"text": "", "user": "u"}, "observation 1: text is empty"),
        ({"text": "x", "user": "u", "observed": "2026"}, "did you mean observed_at"),
        ("x", "observation 1: str"),
    ],
)
def test_add_many_refuses_a_bad_item_before_storing_any(memory: Memory, bad: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        memory.add_many([{"text": TEA, "user": "u"}, bad])  # type: ignore[list-item]
    assert memory.history(user="u") == []


def test_add_many_is_exact_when_repeated(memory: Memory) -> None:
    batch = [{"text": PARIS, "user": "u", "id": "a"}, {"text": ROME, "user": "u", "id": "b"}]
    assert memory.add_many(batch) == memory.add_many(batch)
    assert len(memory.history(user="u")) == 2
    with pytest.raises(InputError, match="'a' occurs twice"):
        memory.add_many([batch[0], batch[0]])


# Files --------------------------------------------------------------------------------------------------------------


def test_a_store_survives_reopening(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with open_memory({(PARIS, ROME): "CON"}, path) as memory:
        memory.add(PARIS, user="u")
        memory.add(ROME, user="u")
        before = memory.primaries(user="u")
    with open_memory(path=path) as memory:
        assert memory.primaries(user="u") == before
        assert memory.search("Rome", user="u").hits[0].id == before[0].id
        assert memory.verify().ok


@pytest.mark.sqlite
def test_a_foreign_database_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE notes (text)")
    db.commit()
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        open_memory(path=path)
    assert path.read_bytes() == before


@pytest.mark.sqlite
def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.db"
    path.write_text("not a database at all, " * 100)
    with pytest.raises(StoreError, match="not a usable store"):
        open_memory(path=path)
    assert path.read_text().startswith("not a database")


@pytest.mark.sqlite
def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    open_memory(path=path).close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.commit()
    db.close()
    with pytest.raises(StoreError, match=r"schema 99.*upgrade roam"):
        open_memory(path=path)


@pytest.mark.sqlite
def test_a_store_of_the_first_schema_is_brought_up_to_date(tmp_path: Path) -> None:
    with open_memory({(PARIS, ROME): "CON"}, tmp_path / "new.db") as memory:
        for number, text in enumerate((PARIS, ROME)):
            memory.add(text, user="u", id=str(number))
        before, log = memory.primaries(user="u"), memory.history(user="u")
        tables = memory._store.rows("SELECT name, sql FROM sqlite_master ORDER BY name")
        rows = {name: memory._store.rows(f"SELECT * FROM {name}") for name in ("meta", *ROWS)}
    old = apsw.Connection(str(tmp_path / "old.db"))
    old.execute(f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version=1; {statements(1, WORDS)}")
    for name, content in rows.items():
        for row in content:
            old.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)
    old.close()
    with open_memory(path=tmp_path / "old.db") as memory:
        assert (memory.primaries(user="u"), memory.history(user="u")) == (before, log)
        assert memory._store.rows("PRAGMA user_version") == [(SCHEMA_VERSION,)]
        assert memory._store.rows("SELECT name, sql FROM sqlite_master ORDER BY name") == tables
        assert memory.verify().ok


def test_S21_another_embedder_is_refused_and_data_kept(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with open_memory(path=path) as memory:
        memory.add(TEA, user="u")
    with pytest.raises(StoreError, match=r"hash-64 .*hash-32"):
        Memory.open(path, manager=ScriptedRelations(), embedder=HashEmbedder(32))
    with open_memory(path=path) as memory:
        assert [view.text for view in memory.primaries(user="u")] == [TEA]


@pytest.mark.sqlite
@pytest.mark.parametrize("path", ["", "no/such/folder/m.db", "mysql://localhost/roam"])
def test_a_path_that_cannot_hold_a_file_is_refused(path: str) -> None:
    with pytest.raises(InputError):
        open_memory(path=path)


@pytest.mark.sqlite
def test_a_damaged_store_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with open_memory(path=path) as memory:
        memory.add_many([{"text": f"Fact number {n}.", "user": "u"} for n in range(40)])
    data = bytearray(path.read_bytes())
    for page in range(2, len(data) // 16_384):  # keep the header page, ruin the rest
        data[page * 16_384 : page * 16_384 + 200] = b"\xff" * 200
    path.write_bytes(bytes(data))
    with pytest.raises(StoreError, match=r"damaged|not a usable store"), open_memory(path=path) as memory:
        memory.add("One more fact.", user="u")


def test_a_batch_of_several_users_keeps_their_judgements_apart() -> None:
    """A pair is classified once a batch and kept under each user who said it; erasing one leaves the other's."""
    model = ScriptedRelations()
    facts = [("Has a red bike.", "ana"), ("Has a red bike.", "bob"), ("Has a blue bike.", "ana"),
             ("Has a blue bike.", "bob"), ("Has a green bike.", "bob")]  # fmt: skip
    with Memory.open(":memory:", manager=model, embedder=HashEmbedder(), fusion="off", floor=-1.0) as memory:
        memory.add_many([{"text": text, "user": user} for text, user in facts])
        assert len(model.calls) == 1
        assert sorted(model.calls[0]) == sorted({
            Pair("Has a red bike.", "Has a blue bike."), Pair("Has a red bike.", "Has a green bike."),
            Pair("Has a blue bike.", "Has a green bike."),
        })  # fmt: skip
        memory.erase_user("ana")
        assert len(memory.primaries(user="bob")) == 3
        assert all(memory.explain(view.id) for view in memory.primaries(user="bob"))
