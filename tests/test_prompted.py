"""The prompted manager in a store, behind a real HTTP server: relations, views, rubbish, extraction."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roam.cli import main
from roam.errors import InputError, LLMError
from roam.llm import LLMClient, LLMSettings
from roam.llm.replies import UnusableReplyError
from roam.memory import Memory
from roam.prompted import PromptedExtractor, PromptedFuser, PromptedRelationModel, Turn, prompted_manager
from roam.prompted.fusion_prompt import fusion_messages
from roam.prompted.relation_prompt import RULES, parse_answer, relation_messages
from roam.records import FusionRequest, Pair, TimedText
from roam.relations import INDEX, RELATIONS, Relation
from tests.llm_server import MODEL, Body, Stub, relations, serving
from tests.stubs import HashEmbedder

LYON, GHENT = "The user lives in Lyon.", "The user lives in Ghent."


def client(stub: Stub, **settings: Any) -> LLMClient:
    return LLMClient(LLMSettings(stub.url, MODEL, timeout=10.0, transport_retries=0, **settings))


def relations_and_views(script: Mapping[tuple[str, str], str], view: str) -> Any:
    label = relations(script)

    def answer(body: Body) -> str:
        return label(body) if body["messages"][0]["content"] == RULES else view

    return answer


# Relations --------------------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_labels_become_rows_and_a_missing_one_says_nothing() -> None:
    with serving(relations({(LYON, GHENT): "CON", ("a", "b"): "maybe"})) as stub:
        model = PromptedRelationModel(client(stub))
        rows = model.predict_proba([Pair(LYON, GHENT), Pair(GHENT, LYON), Pair("a", "b")])
    assert rows.dtype == np.float32
    assert [RELATIONS[int(row.argmax())] for row in rows[:2]] == [Relation.CON, Relation.IND]
    assert rows[0, INDEX[Relation.CON]] == rows[1, INDEX[Relation.IND]] == 1.0
    assert rows[2] == pytest.approx(0.2)
    assert model.predict_proba([]).shape == (0, 5)


@pytest.mark.integration
def test_the_rules_come_first_and_are_the_same_for_every_pair() -> None:
    hostile = 'x"\nNEW: "y'
    with serving(relations({})) as stub:
        PromptedRelationModel(client(stub)).label([Pair(LYON, GHENT), Pair(hostile, "z")])
    systems = {body["messages"][0]["content"] for body in stub.requests}
    assert systems == {RULES}
    for body in stub.requests:
        assert len(body["messages"][1]["content"].splitlines()) == 2  # no fact can pass for the other
    assert relation_messages(Pair(LYON, GHENT))[0] == relation_messages(Pair("p", "q"))[0]


@pytest.mark.unit
@pytest.mark.parametrize("relation", RELATIONS)
def test_an_answer_is_read_in_any_case(relation: Relation) -> None:
    assert parse_answer(json.dumps({"relation": str(relation).lower()})) is relation


@pytest.mark.unit
@pytest.mark.parametrize("text", ['{"relation": "EQUAL"}', '{"relation": null}', '{"label": "IND"}', "IND",
                                  '{"relation": "IND", "why": "so"}'])  # fmt: skip
def test_other_answers_are_refused(text: str) -> None:
    with pytest.raises(UnusableReplyError):
        parse_answer(text)


# In a store -------------------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_s01_rubbish_about_one_fact_of_ten_loses_nothing() -> None:
    def answer(body: Body) -> str:
        facts = body["messages"][1]["content"]
        return "I am not sure." if '"The user met Anna on day 7."' in facts else '{"relation": "IND"}'

    facts = [{"text": f"The user met Anna on day {day}.", "user": "maya", "id": f"f{day}"} for day in range(10)]
    with (
        serving(answer) as stub,
        Memory.open(":memory:", manager=prompted_manager(client(stub)), embedder=HashEmbedder(), floor=-1.0) as memory,
    ):
        for fact in facts:
            memory.add(**fact)
        doubtful = memory.reviews(user="maya")
        assert len(memory.primaries(user="maya")) == 10
        assert {pair.new.id for pair in doubtful} == {"f7", "f8", "f9"}  # those whose pairs had the seventh in them
        assert all("f7" in (pair.new.id, pair.old.id) for pair in doubtful)
        assert memory.stats.llm_errors == 7 + 2
        assert memory.stats.llm_calls == 45 + 9  # one a pair, one more for each that could not be read
        assert memory.verify()


@pytest.mark.integration
def test_relations_and_views_by_prompt() -> None:
    view = "The user's home city: Lyon -> Ghent (current, as of 2026-03-01)"
    with (
        serving(relations_and_views({(LYON, GHENT): "CON"}, view)) as stub,
        Memory.open(
            ":memory:", manager=prompted_manager(client(stub)), embedder=HashEmbedder(), fusion="manager"
        ) as memory,
    ):
        memory.add(LYON, user="maya", observed_at="2026-01-05")
        decision = memory.add(GHENT, user="maya", observed_at="2026-03-01")
        [primary] = memory.primaries(user="maya")
        assert decision.relation is Relation.CON
        assert primary.text == view
        assert (memory.stats.llm_calls, memory.stats.llm_errors, memory.stats.fusion_fallbacks) == (2, 0, 0)
    assert "2026-01-05" in stub.requests[1]["messages"][1]["content"]


@pytest.mark.integration
@pytest.mark.parametrize("view", ["", "The user has three yachts in Monaco and 17 cats."])
def test_a_view_that_is_wrong_or_missing_becomes_the_rules_view(view: str) -> None:
    with (
        serving(relations_and_views({(LYON, GHENT): "CON"}, view)) as stub,
        Memory.open(
            ":memory:", manager=prompted_manager(client(stub)), embedder=HashEmbedder(), fusion="manager"
        ) as memory,
    ):
        memory.add(LYON, user="maya", observed_at="2026-01-05")
        memory.add(GHENT, user="maya", observed_at="2026-03-01")
        [primary] = memory.primaries(user="maya")
        assert "Lyon" in primary.text
        assert "Ghent" in primary.text
        assert "yacht" not in primary.text
        assert memory.stats.fusion_fallbacks == 1


@pytest.mark.integration
def test_an_endpoint_that_is_gone_is_told_and_nothing_is_stored() -> None:
    with serving(relations({})) as stub:
        asking = client(stub)
    with Memory.open(
        ":memory:", manager=prompted_manager(asking), embedder=HashEmbedder(), fusion="manager", floor=-1.0
    ) as memory:
        memory.add(LYON, user="maya")
        with pytest.raises(LLMError):
            memory.add(GHENT, user="maya")
        assert [view.text for view in memory.primaries(user="maya")] == [LYON]
        assert memory.verify()


@pytest.mark.integration
def test_the_command_takes_a_prompted_manager(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ROAM_LLM_URL", raising=False)
    relate = ["relate", LYON, GHENT, "--manager", "prompted", "--json"]
    assert main(relate) == 2
    assert "ROAM_LLM_URL" in capsys.readouterr().err
    with serving(relations({(LYON, GHENT): "CON"})) as stub:
        monkeypatch.setenv("ROAM_LLM_URL", stub.url)
        monkeypatch.setenv("ROAM_LLM_MODEL", MODEL)
        assert main(relate) == 0
    assert json.loads(capsys.readouterr().out)["relation"] == "CON"


# Fusion -----------------------------------------------------------------------------------------------------------


@pytest.mark.unit
@pytest.mark.parametrize("relation", [Relation.EQV, Relation.OSN, Relation.NSO, Relation.CON])
def test_a_fusion_prompt_has_its_rules_first_and_the_dated_texts_last(relation: Relation) -> None:
    inputs = (TimedText("a -> b (current)", "2026-01-05"), TimedText('say "x"\nand y', None))
    rules, told = fusion_messages(FusionRequest(inputs, relation))
    assert "chain" in rules["content"]
    assert "count" in rules["content"]
    lines = told["content"].splitlines()
    assert lines[0] == '1. "a -> b (current)" (time: 2026-01-05)'
    assert lines[1] == '2. "say \\"x\\" and y" (time: unknown)'
    others = {fusion_messages(FusionRequest(inputs, r))[0]["content"] for r in RELATIONS if r is not Relation.IND}
    assert len(others) == 4


@pytest.mark.unit
def test_nothing_to_fuse_is_refused() -> None:
    with pytest.raises(InputError):
        fusion_messages(FusionRequest((TimedText("a", None),), Relation.IND))


@pytest.mark.integration
def test_one_call_a_view() -> None:
    requests = [FusionRequest((TimedText("a", None), TimedText("b", None)), Relation.EQV)] * 3
    with serving(lambda body: ' "The user\nswims." ') as stub:
        fuser = PromptedFuser(client(stub))
        assert fuser.fuse(requests) == ["The user swims."] * 3
    assert fuser.usage.calls == 3
    assert MODEL in fuser.name


# Extraction -------------------------------------------------------------------------------------------------------

DIALOGUE = [
    Turn("user", "I moved to Ghent yesterday.", "2026-03-02T09:00", "t1"),
    Turn("assistant", "How nice!", "2026-03-02T09:01", "t2"),
    Turn("user", "And I got a cat.", None),
]


@pytest.mark.integration
def test_facts_are_dated_and_name_their_turn() -> None:
    facts: list[dict[str, Any]] = [
        {"text": "The user moved to Ghent on 2026-03-01.", "time": None, "turn": 1},
        {"text": "The user has a cat.", "time": "2026-03-02", "turn": 3},
    ]
    with serving(lambda body: json.dumps({"facts": facts})) as stub:
        found = PromptedExtractor(client(stub)).extract(DIALOGUE, user="maya", source="chat-1")
    assert [o.text for o in found.observations] == [fact["text"] for fact in facts]
    assert [str(o.observed_at)[:16] for o in found.observations] == ["2026-03-02 09:00", "2026-03-02 00:00"]
    assert [o.source for o in found.observations] == ["t1", "chat-1"]
    assert found.unread == ()
    assert "2. assistant (2026-03-02T09:01" in stub.prompts()[0]
    with Memory.open(":memory:", manager=PromptedRelationModel(client(stub)), embedder=HashEmbedder(), floor=1.0) as m:
        assert len(m.add_many(found.observations)) == 2


@pytest.mark.integration
def test_pieces_that_could_not_be_read_are_handed_back() -> None:
    def answer(body: Body) -> str:
        return "none" if "cat" in body["messages"][1]["content"] else '{"facts": []}'

    with serving(answer) as stub:
        found = PromptedExtractor(client(stub, answer_retries=0), turns=2).extract(DIALOGUE, user="maya")
    assert found.observations == ()
    assert found.unread == (DIALOGUE[2],)


@pytest.mark.integration
@pytest.mark.parametrize(
    "facts",
    ["x", [1], [{"text": "a"}], [{"text": "", "time": None, "turn": 1}], [{"text": "a", "time": "soon", "turn": 1}],
     [{"text": "a", "time": None, "turn": 4}], [{"text": "a", "time": None, "turn": True}]],
)  # fmt: skip
def test_facts_that_are_none_are_not_guessed_at(facts: object) -> None:
    with serving(lambda body: json.dumps({"facts": facts})) as stub:
        found = PromptedExtractor(client(stub, answer_retries=0)).extract(DIALOGUE, user="maya")
    assert found.unread == tuple(DIALOGUE)


@pytest.mark.unit
def test_bad_dialogues_are_refused_before_anything_is_sent() -> None:
    extractor = PromptedExtractor(LLMClient(LLMSettings("http://127.0.0.1:9/v1", MODEL)))
    for turns, user in (([Turn("system", "x")], "maya"), ([Turn("user", "x", "soon")], "maya"), ([], "")):
        with pytest.raises(InputError):
            extractor.extract(turns, user=user)
    with pytest.raises(InputError):
        PromptedExtractor(extractor.client, turns=0)
