"""The shipped adapter on real base weights: reported failures of other systems, and what its card must say."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from data.build import split_families
from data.families import read_families
from eval.false_conflict import cross_topic_pairs, near_pairs
from eval.metrics import decide
from roam import Memory
from roam.adapters import read_card
from roam.bases import resolve_base
from roam.embedders import DEFAULT_EMBEDDER, TransformerEmbedder
from roam.interfaces import RelationModel
from roam.managers import DEFAULT_ADAPTER, PRETRAINED, adapter_folder, load_manager
from roam.records import Pair
from roam.relations import INDEX, RELATIONS, Relation

ADAPTER = PRETRAINED / DEFAULT_ADAPTER
pytestmark = [pytest.mark.integration]
needs_base = pytest.mark.models(read_card(ADAPTER).base)
# Two names that share a part look to the shipped adapter like two people.
known_miss = pytest.mark.xfail(reason="the shipped adapter misses a change of name", strict=True)
ROOT = Path(__file__).parent.parent
FAMILIES, README = ROOT / "data" / "families.jsonl", ROOT / "README.md"


@pytest.fixture(scope="module")
def model() -> RelationModel:
    return load_manager("pretrained").relation_model


def counted(model: RelationModel, pairs: list[Pair]) -> list[Relation]:
    """The relation that the store would act on, after thresholds."""
    return [RELATIONS[column] for column in decide(model.predict_proba(pairs), model.thresholds)]


def both_orders(*texts: str) -> list[Pair]:
    return [Pair(old, new) for old, new in itertools.permutations(texts, 2)]


def test_E02_card_publishes_the_merge_error_rate() -> None:
    card = read_card(ADAPTER)
    assert set(card.thresholds) == {relation.value for relation in RELATIONS[1:]}
    for measured in ("dev", "test"):
        report = card.metrics[measured]
        assert set(report["per_class"]) == {relation.value for relation in RELATIONS}
        assert all({"precision", "recall", "f1", "support"} <= set(score) for score in report["per_class"].values())
        assert np.array(report["confusion"]).shape == (5, 5)
        assert 0 <= report["merge_error_rate"] <= 1
        assert 0 <= report["at_thresholds"]["merge_error_rate"] <= 1
    text = (ADAPTER / "README.md").read_text(encoding="utf-8")
    for words in ("Merge error rate", "Confusion", "Thresholds", "Measured on test", card.digest):
        assert words in text


def test_shipped_adapter_is_found_by_name() -> None:
    assert adapter_folder("pretrained") == ADAPTER


@needs_base
def test_R04_a_steak_dinner_does_not_end_vegetarianism(model: RelationModel) -> None:
    found = counted(
        model, [Pair("The user is a vegetarian.", "The user wants a steak dinner reservation for a client.")]
    )
    assert found == [Relation.IND]


@needs_base
def test_R07_aboutness_is_not_contradiction(model: RelationModel) -> None:
    pairs = both_orders("The user's favourite player is Messi.", "The user's brother's favourite player is Ronaldo.")
    assert counted(model, pairs) == [Relation.IND] * 2


@needs_base
def test_R02_R09_mentioning_an_entity_retires_nothing(model: RelationModel) -> None:
    assert counted(model, both_orders("Ana is CTO at Acme.", "Ana administers Acme's GitHub organization.")) == [
        Relation.IND, Relation.IND,
    ]  # fmt: skip
    travels = both_orders("The user travels the world.", "The user eats late-night snacks at weekends.")
    assert counted(model, travels) == [Relation.IND] * 2


@needs_base
@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("My name is Li Guoyu.", "My name is Li Guosong.", marks=known_miss),
        ("The user lives in Lyon.", "The user lives in Ghent."),
        ("I like coffee.", "I no longer like coffee, I like tea now."),
        ("The user loves jazz.", "The user hates jazz."),
    ],
)
def test_R03_R05_R06_changed_states_conflict(model: RelationModel, old: str, new: str) -> None:
    assert counted(model, [Pair(old, new)]) == [Relation.CON]


@needs_base
def test_R11_unrelated_facts_all_stay_primary() -> None:
    with Memory.open(":memory:") as memory:
        for text in ("Tomatoes grow best in full sun.", "Vector retrieval finds similar texts.",
                     "Apollo 11 landed on the Moon in 1969."):  # fmt: skip
            memory.add(text, user="ana", observed_at="2026-01-01")
        assert len(memory.primaries(user="ana")) == 3


@needs_base
def test_the_readme_tour_shows_what_it_says() -> None:
    tour = re.findall(r'^roam add "(.+?)" +--user (\w+) +--observed-at (\S+)$', README.read_text("utf-8"), re.MULTILINE)
    assert len(tour) == 4
    with Memory.open(":memory:") as memory:
        decisions = [memory.add(text, user=user, observed_at=time) for text, user, time in tour]
        assert [decision.relation for decision in decisions] == ["IND", "IND", "OSN", "CON"]
        first = memory.search("Which city does the user live in?", user="maya", budget=64).hits[0].text
        assert first == "The user's home city: Lyon -> Ghent (current, as of 2026-03-01)"
        assert memory.undo(decisions[-1].id)


def false_conflicts(model: RelationModel, count: int) -> float:
    pairs = cross_topic_pairs(read_families(FAMILIES), count, seed=0)
    return counted(model, pairs).count(Relation.CON) / count


@needs_base
def test_R10_R12_cross_topic_pairs_do_not_conflict(model: RelationModel) -> None:
    assert false_conflicts(model, 100) == 0


@needs_base
@pytest.mark.slow
def test_R10_R12_false_conflicts_of_a_thousand(model: RelationModel) -> None:
    assert false_conflicts(model, 1000) <= 0.005


@needs_base
@pytest.mark.slow
def test_R12_hard_independents_of_held_out_families_rarely_conflict(model: RelationModel) -> None:
    """Ten times fewer false conflicts than the 23 % of a check by similarity, on facts of the same topic."""
    pairs = near_pairs(split_families(read_families(FAMILIES))[1], 100, seed=0)
    assert counted(model, pairs).count(Relation.CON) <= 2


@pytest.mark.models
def test_loading_the_encoder_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    TransformerEmbedder(resolve_base(DEFAULT_EMBEDDER)).embed(["The user has a dog."])
    assert capfd.readouterr() == ("", "")


@needs_base
def test_obvious_pairs_of_each_relation(model: RelationModel) -> None:
    pairs = {
        Relation.EQV: Pair("The user works as a nurse.", "The user is employed as a nurse."),
        Relation.OSN: Pair("The user has a dog.", "The user has a beagle named Otto."),
        Relation.NSO: Pair("The user has a beagle named Otto.", "The user has a dog."),
        Relation.CON: Pair("The user loves jazz.", "The user hates jazz."),
        Relation.IND: Pair("The user lives in Lyon.", "The user plays the piano."),
    }
    probabilities = model.predict_proba(list(pairs.values()))
    assert np.allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    assert probabilities.argmax(axis=1).tolist() == [INDEX[relation] for relation in pairs]
