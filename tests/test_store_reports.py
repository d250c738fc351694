"""What users of such stores have reported, as tests: each is named after its row in the list of reports."""

from __future__ import annotations

import multiprocessing
import os
import re
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from roam.events import EventKind
from roam.memory import Memory
from roam.records import FusionRequest, Role
from roam.relations import RELATIONS, Relation
from tests.back_ends import address
from tests.stubs import HashEmbedder, JoinFuser, ScriptedRelations

pytestmark = pytest.mark.both_back_ends

ROOT = Path(__file__).resolve().parent.parent


def open_memory(script: dict[tuple[str, str], str] | None = None, path: str | Path = ":memory:") -> Memory:
    model = ScriptedRelations(script)  # type: ignore[arg-type]
    return Memory.open(path, manager=model, embedder=HashEmbedder(), fusion=JoinFuser())


def test_R01_the_same_text_twice_keeps_the_first() -> None:
    with open_memory() as memory:
        first = memory.add("The user likes hiking.", user="u").observation_id
        again = memory.add("The user likes hiking", user="u")
        assert (again.relation, again.primary_id) == (Relation.EQV, first)
        (view,) = memory.primaries(user="u")
        assert (view.id, view.text, len(view.members)) == (first, "The user likes hiking.", 2)
        assert [entry.id for entry in memory.evidence(first)] == [again.observation_id]


def test_R01_default_fusion_leaves_the_view_unchanged() -> None:
    with Memory.open(":memory:", manager=ScriptedRelations(), embedder=HashEmbedder()) as memory:
        memory.add("The user likes hiking.", user="u", observed_at="2026-01-01")
        memory.add("The user likes hiking.", user="u", observed_at="2026-02-01")
        assert [view.text for view in memory.primaries(user="u")] == ["The user likes hiking."]


def test_R02_an_unrelated_fact_overwrites_nothing() -> None:
    with open_memory() as memory:
        texts = ["The user travels the world.", "The user eats late-night snacks at weekends."]
        decisions = [memory.add(text, user="u") for text in texts]
        assert [decision.relation for decision in decisions] == [Relation.IND, Relation.IND]
        assert len({decision.observation_id for decision in decisions}) == 2
        assert [view.text for view in memory.primaries(user="u")] == texts


def test_R03_contradictory_names_do_not_coexist() -> None:
    old, new = "My name is Li Guoyu.", "My name is Li Guosong."
    with open_memory({(old, new): "CON"}) as memory:
        memory.add(old, user="u", observed_at="2026-01-01")
        id = memory.add(new, user="u", observed_at="2026-02-01").observation_id
        assert [(view.id, view.text) for view in memory.primaries(user="u")] == [(id, f"{old} -> {new}")]


def test_R05_the_outdated_preference_is_found_as_evidence_only() -> None:
    coffee, tea = "I like to drink coffee.", "I no longer like coffee, I like to drink tea."
    with open_memory({(coffee, tea): "CON"}) as memory:
        old = memory.add(coffee, user="u").observation_id
        memory.add("I work at a bank.", user="u")
        new = memory.add(tea, user="u").observation_id
        result = memory.search("what do I like to drink now", user="u")
        assert result.hits[0].id == new
        assert old not in {hit.id for hit in result.hits}
        assert [entry.text for entry in memory.evidence(new)] == [coffee]


def test_R06_a_reversed_attitude_leaves_the_new_fact_and_the_old_as_evidence() -> None:
    with open_memory({("The user loves jazz.", "The user hates jazz."): "CON"}) as memory:
        old = memory.add("The user loves jazz.", user="u").observation_id
        new = memory.add("The user hates jazz.", user="u").observation_id
        assert [(view.id, view.atomic_text) for view in memory.primaries(user="u")] == [(new, "The user hates jazz.")]
        kept = memory.get(old)
        assert (kept.observation.text, kept.role, kept.primary_id) == ("The user loves jazz.", Role.EVIDENCE, new)


@pytest.mark.parametrize(
    ("old", "new", "relation"),
    [
        ("The user plays the piano.", "The user can play the piano.", "EQV"),
        ("The user plays an instrument.", "The user plays the cello.", "OSN"),
        ("The user plays the cello.", "The user plays an instrument.", "NSO"),
    ],
)
def test_R16_merged_texts_are_not_hits_of_their_own(old: str, new: str, relation: str) -> None:
    with open_memory({(old, new): relation}) as memory:
        for text in (old, new):
            memory.add(text, user="u")
        assert len(memory.search(old, user="u").hits) == len(memory.search(new, user="u").hits) == 1


def test_R18_a_wrong_fact_is_replaced_and_its_history_kept() -> None:
    wrong, right = "The user was born in 1980.", "The user was born in 1990."
    with open_memory({(wrong, right): "CON"}) as memory:
        memory.add(wrong, user="u", observed_at="2026-01-01", source="chat-1")
        new = memory.add(right, user="u", observed_at="2026-02-01", source="chat-2").observation_id
        (view,), (old,) = memory.primaries(user="u"), memory.evidence(new)
        assert (view.id, old.text) == (new, wrong)
        assert [str(time.date()) for time in (old.observed_at, view.observed_at) if time] == [
            "2026-01-01",
            "2026-02-01",
        ]


@pytest.mark.parametrize("fusion", ["deterministic", "manager", "off"])
@pytest.mark.parametrize("floor", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("thresholds", [None, {}, {"CON": 1.0}])
def test_R19_what_is_added_can_be_read_under_every_setting(
    fusion: str, floor: float, thresholds: dict[str, float] | None
) -> None:
    class Manager:
        relation_model = ScriptedRelations()
        fuser = JoinFuser()

    with Memory.open(
        ":memory:", manager=Manager(), embedder=HashEmbedder(), fusion=fusion, floor=floor, thresholds=thresholds
    ) as memory:
        for text in ("The user owns a cat.", "The user owns a dog."):
            id = memory.add(text, user="u").observation_id
            assert memory.get(id).observation.text == text
            assert id in {hit.id for hit in memory.search(text, user="u").hits}


@pytest.mark.parametrize("relation", RELATIONS)
def test_R20_each_relation_has_the_transition_of_table_1(relation: Relation) -> None:
    old, new = "The first text.", "The second text."
    with open_memory({(old, new): relation.value}) as memory:
        memory.add(old, user="u", id="old")
        memory.add(new, user="u", id="new")
        outcome = {(view.id, view.text, view.members) for view in memory.primaries(user="u")}
        both = ("old", "new")
        assert (
            outcome
            == {
                Relation.IND: {("old", old, ("old",)), ("new", new, ("new",))},
                Relation.EQV: {("old", f"{old} | {new}", both)},
                Relation.OSN: {("new", f"{old} | {new}", both)},
                Relation.NSO: {("old", f"{old} | {new}", both)},
                Relation.CON: {("new", f"{old} -> {new}", both)},
            }[relation]
        )


def test_R20_a_generality_does_not_join_two_specifics() -> None:
    tea, green, black = "The user likes tea.", "The user likes green tea.", "The user likes black tea."
    with open_memory({(green, tea): "NSO", (black, tea): "NSO"}) as memory:
        for id, text in (("green", green), ("black", black), ("tea", tea)):
            memory.add(text, user="u", id=id)
        assert [(view.id, view.members) for view in memory.primaries(user="u")] == [
            ("green", ("green", "tea")),
            ("black", ("black",)),
        ]


def test_C03_a_late_arriving_older_state_becomes_evidence() -> None:
    old, new = "The user lives in Bonn.", "The user lives in Kiel."
    with open_memory({(old, new): "CON"}) as memory:
        current = memory.add(new, user="u", observed_at="2026-05-01").observation_id
        late = memory.add(old, user="u", observed_at="2023-01-02")
        assert (late.relation, late.primary_id, late.demoted_ids) == (Relation.CON, current, (late.observation_id,))
        (view,) = memory.primaries(user="u")
        assert (view.id, view.text) == (current, f"{old} -> {new}"), "the older state stands first in the chain"


@pytest.mark.parametrize("times", [(None, None), (None, "2026-01-01"), ("2026-01-01", None)])
def test_C04_a_conflict_without_times_leaves_one_primary(times: tuple[str | None, str | None]) -> None:
    old, new = "The user lives in Bonn.", "The user lives in Kiel."
    with open_memory({(old, new): "CON"}) as memory:
        memory.add(old, user="u", observed_at=times[0])
        id = memory.add(new, user="u", observed_at=times[1]).observation_id
        assert [view.id for view in memory.primaries(user="u")] == [id]


def test_C05_retracting_the_superseder_brings_the_superseded_back() -> None:
    old, new = "The user lives in Bonn.", "The user lives in Kiel."
    with open_memory({(old, new): "CON"}) as memory:
        first = memory.add(old, user="u").observation_id
        memory.retract(memory.add(new, user="u").observation_id)
        assert [(view.id, view.text) for view in memory.primaries(user="u")] == [(first, old)]


def test_C07_an_update_touches_the_matched_record_only() -> None:
    texts = [f"The user has {n} plants in room {n}." for n in range(8)]
    change = "The user has 9 plants in room 5."
    with open_memory({(texts[5], change): "CON"}) as memory:
        ids = [memory.add(text, user="u").observation_id for text in texts]
        decision = memory.add(change, user="u")
        assert decision.demoted_ids == (ids[5],)
        left = {view.id: view.text for view in memory.primaries(user="u")}
        assert {id: left.get(id) for id in ids} == {
            id: None if n == 5 else text for n, (id, text) in enumerate(zip(ids, texts, strict=True))
        }


@pytest.mark.sqlite
def test_S05_no_socket_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    script = {("The user lives in Bonn.", "The user lives in Kiel."): "CON"}
    with Memory.open(":memory:", manager=ScriptedRelations(script), embedder=HashEmbedder()) as memory:  # type: ignore[arg-type]
        for text in ("The user lives in Bonn.", "The user lives in Kiel."):
            memory.add(text, user="u")
        assert memory.search("Where?", user="u").hits
        memory.add_many([{"text": f"Fact {n}.", "user": "u"} for n in range(5)])


def test_S10_user_is_required_and_matched_exactly() -> None:
    with open_memory() as memory:
        memory.add("The secret of ten.", user="10", id="ten")
        with pytest.raises(TypeError, match="user"):
            memory.search("secret")  # type: ignore[call-arg]
        for other in ("1", "100", "10%", "1_", "*", "10 0", "\uff11\uff10"):
            assert memory.search("secret", user=other).hits == ()
            assert memory.primaries(user=other) == []
        assert memory.search("secret", user="10").hits[0].id == "ten"


def test_S10_users_are_never_compared_with_each_other() -> None:
    script = {("The user lives in Bonn.", "The user lives in Kiel."): "CON"}
    with open_memory(script) as memory:
        memory.add("The user lives in Bonn.", user="a")
        memory.add("The user lives in Kiel.", user="b")
        memory.add("The user lives in Bonn.", user="b-2")
        assert memory.stats.pairs == memory.stats.exact_matches == 0
        assert [len(memory.primaries(user=user)) for user in ("a", "b", "b-2")] == [1, 1, 1]


WRITER = """
    import sys
    sys.path.insert(0, {root!r})
    from roam.memory import Memory
    from tests.stubs import HashEmbedder, JoinFuser, ScriptedRelations
    from roam.relations import Relation

    def relate(old, new):  # facts about one subject replace each other
        return Relation.CON if old.split()[1] == new.split()[1] else Relation.IND

    name = sys.argv[1]
    with Memory.open({path!r}, manager=ScriptedRelations(rule=relate), embedder=HashEmbedder(),
                     fusion=JoinFuser(), k=50) as memory:
        for number in range({count}):
            memory.add(f"Subject {{number % 7}} is {{name}} {{number}}.", user="u", id=f"{{name}}-{{number}}")
        print(memory.stats)
"""


def test_S20_two_processes_write_while_a_third_reads(tmp_path: Path) -> None:
    path, count = tmp_path / "m.db", 60
    code = textwrap.dedent(WRITER.format(root=str(ROOT), path=address(path), count=count))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", code, name],
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for name in ("left", "right")
    ]
    with open_memory(path=path) as reader:
        while any(writer.poll() is None for writer in writers):
            reader.search("Subject 3", user="u")
            reader.primaries(user="u")
        for writer in writers:
            _, errors = writer.communicate(timeout=120)
            assert writer.returncode == 0, errors
        assert sum(len(view.members) for view in reader.primaries(user="u")) == 2 * count
        # The outcome is that of a serial order: one current state for each of the seven subjects.
        assert len(reader.primaries(user="u")) == 7
        assert reader.verify().ok


def test_S20_processes_that_add_retract_and_erase_at_once(tmp_path: Path) -> None:
    """Changes of the log are planned on a snapshot too: none may undo, or be undone by, what another process wrote."""
    path = tmp_path / "m.db"
    open_memory(path=path).close()

    def work(name: str) -> None:
        model = ScriptedRelations(rule=lambda old, new: Relation.CON if old[:9] == new[:9] else Relation.IND)
        with Memory.open(path, manager=model, embedder=HashEmbedder(), fusion=JoinFuser()) as memory:
            for number in range(4):
                for part in "abc":
                    text = f"Subject {number} is {name} {part}."
                    memory.add(text, user="u", id=f"{name}{number}{part}")
                memory.retract(f"{name}{number}b", key=f"{name}{number}")
                memory.erase(f"{name}{number}c")

    processes = [multiprocessing.get_context("fork").Process(target=work, args=(name,)) for name in ("x", "y")]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    with open_memory(path=path) as memory:
        assert memory.verify().problems == ()
        members = [id for view in memory.primaries(user="u") for id in view.members]
        assert sorted(members) == sorted(f"{name}{number}a" for name in "xy" for number in range(4))
        assert b" c." not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


def test_S19_threads_that_share_a_memory_lose_nothing() -> None:
    def relate(old: str, new: str) -> Relation:
        return Relation.CON

    model = ScriptedRelations(rule=relate)
    with Memory.open(":memory:", manager=model, embedder=HashEmbedder(), fusion=JoinFuser()) as memory:
        threads = [
            threading.Thread(target=lambda n=n: [memory.add(f"State {n}.{i}", user="u") for i in range(5)])
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (view,) = memory.primaries(user="u")
        assert len(view.members) == 40
        assert memory.verify().ok


@pytest.mark.sqlite
def test_S23_no_framework_is_needed() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from roam.memory import Memory; from tests.stubs import *\n"
        "m = Memory.open(':memory:', manager=ScriptedRelations(), embedder=HashEmbedder())\n"
        "m.add('A fact.', user='u')\n"
        "m.search('fact', user='u')\n"
        "print([name for name in ('torch', 'transformers', 'peft', 'langchain') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(ROOT)], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr


class Rewriter:
    """A fuser as reported: it drops numbers and makes up a clause."""

    name = "rewriter"

    def fuse(self, requests: Sequence[FusionRequest]) -> list[str]:
        return ["The quiz app has many questions, and all users love it." for _ in requests]


@pytest.mark.parametrize(
    ("old", "new", "relation"),
    [
        ("The quiz app has 5 questions.", "The quiz app v2.1.64 has 5 questions.", "OSN"),
        ("The quiz app v2.1.64 has 5 questions.", "The quiz app has 5 questions.", "NSO"),
        ("The quiz app v2.1.64 has 5 questions.", "There are 5 questions in the quiz app v2.1.64.", "EQV"),
        ("The quiz app v2.1.64 has 5 questions.", "The quiz app v2.1.64 has 12 questions.", "CON"),
    ],
)
@pytest.mark.parametrize("fusion", ["deterministic", Rewriter()])
def test_F02_a_view_has_the_numbers_of_its_sources_and_no_others(
    old: str, new: str, relation: str, fusion: str | Rewriter
) -> None:
    def numbers(text: str) -> set[str]:
        return set(re.findall(r"\d+(?:\.\d+)*", text))

    model = ScriptedRelations({(old, new): relation})
    with Memory.open(":memory:", manager=model, embedder=HashEmbedder(), fusion=fusion) as memory:
        memory.add(old, user="u")
        memory.add(new, user="u")
        (view,) = memory.primaries(user="u")
        assert numbers(view.text) == numbers(old) | numbers(new)
        assert "love" not in view.text
        fallbacks = [event for event in memory.history(user="u") if event.kind is EventKind.FUSION_FALLBACK]
        assert len(fallbacks) == memory.stats.fusion_fallbacks == (fusion != "deterministic")


@pytest.mark.sqlite
@pytest.mark.slow
def test_S04_a_thousand_facts_at_once_are_a_thousand_one_by_one() -> None:
    def relate(old: str, new: str) -> Relation:
        return Relation.CON if old.split()[1] == new.split()[1] else Relation.IND

    facts: list[dict[str, object]] = [
        {"text": f"Subject {n % 300} is in state {n}.", "user": f"u{n % 3}", "id": str(n)} for n in range(1000)
    ]
    outcomes, passes = [], []
    for many in (True, False):
        model = ScriptedRelations(rule=relate)
        with Memory.open(":memory:", manager=model, embedder=HashEmbedder(), fusion=JoinFuser()) as memory:
            if many:
                memory.add_many(facts)
            else:
                for fact in facts:
                    memory.add(**fact)  # type: ignore[arg-type]
            outcomes.append([memory.primaries(user=user) for user in memory.users()])
            passes.append(memory.stats.forward_passes)
    assert outcomes[0] == outcomes[1]
    assert passes[0] < passes[1] / 10


ROWS = (
    *(f"R{n:02}" for n in (*range(1, 8), *range(9, 13), *range(16, 21))),
    *(f"F{n:02}" for n in (1, 2, 4)),
    *(f"S{n:02}" for n in (1, 2, 4, 5, 6, 7, 10, 11, 12, 14, 16, 19, 20, 21, 23, 24)),
    *(f"C{n:02}" for n in (1, 2, 3, 4, 5, 7, 8)),
)


@pytest.mark.sqlite
@pytest.mark.parametrize("row", ROWS)
def test_every_report_has_a_test_named_after_it(row: str) -> None:
    code = "\n".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    assert re.search(rf"^ *def test_(?:[A-Z]\d\d_)*{row}_", code, flags=re.MULTILINE | re.IGNORECASE)
