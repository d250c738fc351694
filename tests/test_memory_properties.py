"""Properties of the store on random streams, against Algorithm 1 written down a second time."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from roam.events import EventKind
from roam.memory import Memory
from roam.records import Role
from roam.relations import RELATIONS, SWAPPED, Relation
from roam.schema import USER_TABLES
from roam.state import effective_undos, fold, rebase
from roam.transfer import export_lines, parse_export
from tests.back_ends import Schemas, server
from tests.stubs import HashEmbedder, JoinFuser, ScriptedRelations

TEXTS = tuple(f"Fact {letter} holds." for letter in "ABCDEFG")
START = datetime(2026, 1, 1, tzinfo=UTC)
relations = st.lists(st.sampled_from(RELATIONS), min_size=49, max_size=49)


def model_of(drawn: list[Relation], digest: str = "drawn") -> ScriptedRelations:
    """A model with one drawn relation for each unordered pair of `TEXTS`, swapped consistently."""

    def relate(old: str, new: str) -> Relation:
        first, second = sorted((TEXTS.index(old), TEXTS.index(new)))
        relation = drawn[first * 7 + second]
        return relation if TEXTS.index(old) == first else SWAPPED[relation]

    return ScriptedRelations(rule=relate, digest=digest)


def open_memory(drawn: list[Relation], address: str = ":memory:") -> Memory:
    return Memory.open(address, manager=model_of(drawn), embedder=HashEmbedder(), fusion=JoinFuser())


def rows_of(memory: Memory, user: str) -> dict[str, list[str]]:
    """Return all that is stored of one user, table by table."""
    with memory._reading() as store:
        return {
            table: sorted(map(repr, store.rows(f"SELECT * FROM {table} WHERE user = ?", (user,))))
            for table in USER_TABLES
        }


def moment(day: int | None) -> datetime | None:
    return None if day is None else START + timedelta(days=day)


def outline(memory: Memory, user: str = "u") -> list[tuple[str, str, frozenset[str]]]:
    return [(view.id, view.text, frozenset(view.members)) for view in memory.primaries(user=user)]


@dataclass
class ByHand:
    """Algorithm 1 for a chronological stream: times only grow, so arrival order is time order."""

    drawn: list[Relation]
    text: dict[int, str] = field(default_factory=dict)
    view: dict[int, str] = field(default_factory=dict)  # of the Primaries
    under: dict[int, int] = field(default_factory=dict)  # Evidence -> Primary

    def add(self, new: int, text: str) -> None:
        self.text[new] = text
        relate = model_of(self.drawn)._rule
        assert relate is not None
        same = [old for old in self.view if self.text[old] == text]
        labels = dict.fromkeys(same, "EQV") or {
            old: relate(self.text[old], text).value for old in self.view if self.text[old] != text
        }
        for wanted in ("CON", "OSN", "EQV", "NSO"):
            matches = sorted(old for old, label in labels.items() if label == wanted)
            if matches:
                self.merge(wanted, matches, new)
                return
        self.view[new] = text

    def merge(self, relation: str, matches: list[int], new: int) -> None:
        if relation in ("CON", "OSN"):
            survivor, demoted = new, matches
        elif relation == "EQV":
            survivor, demoted = matches[0], [*matches[1:], new]
        else:
            survivor, demoted = matches[0], [new]
        parts = sorted([survivor, *demoted])
        texts = [self.view.get(part, self.text[part]) for part in parts]
        fused = (" -> " if relation == "CON" else " | ").join(dict.fromkeys(texts))
        for gone in demoted:
            self.view.pop(gone, None)
            self.under[gone] = survivor
            for evidence, primary in self.under.items():
                if primary == gone:
                    self.under[evidence] = survivor
        self.view[survivor] = fused

    def outline(self) -> list[tuple[str, str, frozenset[str]]]:
        return [
            (str(id), self.view[id], frozenset([str(id), *(str(e) for e, p in self.under.items() if p == id)]))
            for id in sorted(self.view)
        ]


@settings(max_examples=60, deadline=None)
@given(relations, st.lists(st.sampled_from(TEXTS), max_size=9))
def test_chronological_stream_is_algorithm_1_by_hand(drawn: list[Relation], stream: list[str]) -> None:
    by_hand = ByHand(drawn)
    with open_memory(drawn) as memory:
        for number, text in enumerate(stream):
            memory.add(text, user="u", id=str(number), observed_at=START + timedelta(days=number))
            by_hand.add(number, text)
            assert outline(memory) == by_hand.outline()


facts = st.lists(
    st.tuples(
        st.sampled_from(TEXTS), st.sampled_from(["u", "v"]), st.one_of(st.none(), st.integers(min_value=0, max_value=5))
    ),
    max_size=12,
)


@settings(max_examples=50, deadline=None)
@given(relations, facts, st.integers(min_value=1, max_value=4))
def test_S04_add_many_equals_one_by_one(
    drawn: list[Relation], stream: list[tuple[str, str, int | None]], k: int
) -> None:
    batch: list[dict[str, object]] = [
        {"text": text, "user": user, "id": str(number), "observed_at": moment(days)}
        for number, (text, user, days) in enumerate(stream)
    ]
    results = []
    for many in (True, False):
        model = model_of(drawn)
        with Memory.open(":memory:", manager=model, embedder=HashEmbedder(), fusion=JoinFuser(), k=k) as memory:
            decisions = memory.add_many(batch) if many else [memory.add(**item) for item in batch]  # type: ignore[arg-type]
            views = [memory.primaries(user=user) for user in ("u", "v")]
            roles = [(d.relation, d.primary_id, d.demoted_ids, d.matched_ids, d.judgements) for d in decisions]
            results.append((views, roles))
            passes = memory.stats.forward_passes
            assert passes <= len(batch)
    assert results[0] == results[1]


class Store(RuleBasedStateMachine):
    """Any sequence of add, late add, batch, retract, undo, redo, review, replay and erasure keeps the invariants.

    A neighbour with the same words lives in the same store; nothing that happens to the user may touch one of his rows.
    """

    def __init__(self) -> None:
        super().__init__()
        drawn = [Relation.CON, Relation.IND, Relation.OSN, Relation.EQV, Relation.NSO] * 10
        self.memory = open_memory(drawn, self.address())
        self.memory._store.signs.exact_up_to = 2  # beyond two Primaries the user counts as very large
        self.texts: dict[str, str] = {}
        self.retracted: set[str] = set()
        self.made = 0
        neighbour = [{"text": text, "user": "v", "id": f"v-{number}"} for number, text in enumerate(TEXTS[:4])]
        self.memory.add_many(neighbour)
        self.neighbour = rows_of(self.memory, "v")

    def address(self) -> str:
        """Where a store of its own is kept."""
        return ":memory:"

    def fresh_id(self) -> str:
        """Ids by count, so that a failing sequence can be replayed exactly."""
        self.made += 1
        return f"id-{self.made:03d}"

    def teardown(self) -> None:
        """Whatever happened, an export taken in elsewhere gives the same state, and the same export."""
        lines = list(export_lines(self.memory._store, ["u"], receipts=False))
        with open_memory([Relation.IND] * 49, self.address()) as twin:
            twin.import_blocks(parse_export("\n".join([*lines, ""]), "export"))
            assert twin.primaries(user="u") == self.memory.primaries(user="u")
            assert list(export_lines(twin._store, ["u"], receipts=False)) == lines
            assert twin.verify().ok
        self.memory.close()

    @rule(text=st.sampled_from(TEXTS), day=st.one_of(st.none(), st.integers(min_value=0, max_value=30)))
    def add(self, text: str, day: int | None) -> None:
        id = self.fresh_id()
        self.memory.add(text, user="u", observed_at=moment(day), id=id)
        self.texts[id] = text

    @rule(texts=st.lists(st.sampled_from(TEXTS), min_size=1, max_size=4))
    def add_many(self, texts: list[str]) -> None:
        batch = {self.fresh_id(): text for text in texts}
        self.memory.add_many([{"text": text, "user": "u", "id": id} for id, text in batch.items()])
        self.texts.update(batch)

    @precondition(lambda self: len(self.texts) > len(self.retracted))
    @rule(data=st.data())
    def retract(self, data: st.DataObject) -> None:
        passes = self.memory.stats.forward_passes
        id = data.draw(st.sampled_from([id for id in self.texts if id not in self.retracted]))
        self.memory.retract(id)
        self.retracted.add(id)
        assert self.memory.stats.forward_passes == passes

    @precondition(lambda self: self.retracted)
    @rule(data=st.data())
    def take_back_a_retraction(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.retracted)))
        last = [
            event for event in self.memory.history(user="u") if event.kind == "retract" and event.observation_id == id
        ]
        self.memory.undo(last[-1].id)
        self.retracted.discard(id)

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def undo_and_redo(self, data: st.DataObject) -> None:
        """Decisions, verdicts and replays: taken back for good or for a moment, or made to count again."""
        log = self.memory.history(user="u")
        undone = effective_undos(log)
        kinds = (EventKind.DECISION, EventKind.REVIEW, EventKind.REPLAY)
        event = data.draw(st.sampled_from([entry for entry in log if entry.kind in kinds]))
        # A replay may have made the decision another one; one that is IND now changed nothing that could be taken back.
        now = next((entry for entry in rebase(log).events if entry.id == event.id), event)
        if event.id in undone:
            self.memory.redo(event.id)
        elif now.decision is None or now.decision.relation is not Relation.IND:
            before = outline(self.memory)
            self.memory.undo(event.id)
            if data.draw(st.booleans()):
                self.memory.redo(event.id)
                assert outline(self.memory) == before

    @precondition(lambda self: len(self.texts) > 1)
    @rule(data=st.data(), relation=st.sampled_from(RELATIONS))
    def review(self, data: st.DataObject, relation: Relation) -> None:
        new, old = sorted(data.draw(st.sets(st.sampled_from(sorted(self.texts)), min_size=2, max_size=2)), reverse=True)
        passes = self.memory.stats.forward_passes
        self.memory.decide(new, old, relation)
        assert self.memory.stats.forward_passes == passes
        assert (new, old) not in {(pair.new.id, pair.old.id) for pair in self.memory.reviews(user="u")}

    @rule(strict=st.booleans(), other=st.booleans())
    def replay(self, strict: bool, other: bool) -> None:
        manager = model_of([Relation.EQV, Relation.CON, Relation.IND] * 17, "other") if other else None
        replay = self.memory.replay(user="u", manager=manager, thresholds={"CON": 0.99} if strict else {})
        now = {id: view.id for view in self.memory.primaries(user="u") for id in view.members}
        then = {id: view.id for view in replay.views_then for id in view.members}
        assert {entry.observation.id for entry in replay.moved} == {id for id in now if now[id] != then[id]}
        self.memory.apply(replay)
        assert tuple(self.memory.primaries(user="u")) == replay.views_then

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def erase(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.texts)))
        self.memory.erase(id)
        del self.texts[id]
        self.retracted.discard(id)
        assert repr(id) not in repr(self.memory.history(user="u"))

    @rule()
    def erase_user(self) -> None:
        receipt = self.memory.erase_user("u")
        assert receipt.observations == len(self.texts)
        self.texts.clear()
        self.retracted.clear()
        assert not any(rows_of(self.memory, "u").values())
        assert self.memory.history(user="u") == []

    @invariant()
    def the_neighbour_is_untouched(self) -> None:
        assert rows_of(self.memory, "v") == self.neighbour

    @invariant()
    def the_index_of_large_users_holds_what_is_stored(self) -> None:
        vector = HashEmbedder().embed(["Fact"])[0]
        with self.memory._reading("u") as store:
            for kind in ("atomic", "view"):
                held = store.signs.candidates("u", kind, vector, 1000)
                rows = store.rows("SELECT sequence FROM vectors WHERE user = 'u' AND kind = ?", (kind,))
                assert held is None or sorted(held) == sorted(row[0] for row in rows)

    @invariant()
    def roles_partition_the_observations(self) -> None:
        views = self.memory.primaries(user="u")
        members = [id for view in views for id in view.members]
        assert sorted(members) == sorted(self.texts.keys() - self.retracted)
        for view in views:
            assert self.memory.get(view.id).role is Role.PRIMARY
            assert {entry.id for entry in self.memory.evidence(view.id)} == set(view.members) - {view.id}
            for id in set(view.members) - {view.id}:
                assert (self.memory.get(id).role, self.memory.get(id).primary_id) == (Role.EVIDENCE, view.id)

    @invariant()
    def views_hold_the_texts_of_their_members(self) -> None:
        for view in self.memory.primaries(user="u"):
            assert set(re.split(r" \| | -> ", view.text)) == {self.texts[id] for id in view.members}

    @invariant()
    def the_log_run_again_gives_the_state(self) -> None:
        reviser = self.memory._reviser
        log = reviser.read("u")
        assert reviser.refolder(log).run(log.events).views == log.state().views

    @invariant()
    def atomic_text_never_changes(self) -> None:
        for id, text in self.texts.items():
            assert self.memory.get(id).observation.text == text

    @invariant()
    def state_is_the_fold_of_the_log(self) -> None:
        assert self.memory.verify().problems == ()
        observations = {id: self.memory.get(id).observation for id in self.texts}
        assert fold(self.memory.history(user="u"), observations).as_views(observations) == self.memory.primaries(
            user="u"
        )


Store.TestCase.settings = settings(
    # The same examples every time; the slow run looks for new ones.
    max_examples=15,
    stateful_step_count=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
TestStore = Store.TestCase


class StoreOnPostgres(Store):
    """The same machine on a server."""

    def __init__(self) -> None:
        self._schemas = Schemas(server())
        super().__init__()

    def address(self) -> str:
        return self._schemas.address(":memory:")

    def teardown(self) -> None:
        super().teardown()
        self._schemas.drop()


StoreOnPostgres.TestCase.settings = settings(Store.TestCase.settings, max_examples=4, stateful_step_count=10)
TestStoreOnPostgres = StoreOnPostgres.TestCase


@pytest.mark.slow
class TestStoreAtLength(Store.TestCase):  # type: ignore[misc]
    """The same machine, for minutes."""

    settings = settings(
        max_examples=300, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
