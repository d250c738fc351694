"""A fast model before an accurate one, and that the ways of saving passes change no answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from roam.cascade import CascadeRelationModel, load_cascade, margins
from roam.errors import InputError
from roam.managers import load_manager
from roam.memory import Memory
from roam.records import Pair
from roam.relation_model import PairClassifier, TorchRelationModel, softmax
from roam.relations import Relation
from tests.stubs import HashEmbedder, ScriptedRelations
from tests.tiny import toy_pairs
from tests.tiny_adapter import save_adapter

SURE, UNSURE = Pair("Ana likes tea", "Ana hates tea"), Pair("Ana likes tea", "Ana likes rice")
SCRIPT = {(UNSURE.old, UNSURE.new): (Relation.EQV, 0.4), (SURE.old, SURE.new): (Relation.CON, 0.9)}
FACTS = [pair.new for pair in toy_pairs(30, 3, "x")]


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_adapter(tmp_path_factory.mktemp("adapter"), "bert", swap_margin=0.5, max_length=32)


def test_the_accurate_model_is_asked_about_unsure_pairs_alone() -> None:
    fast = ScriptedRelations(SCRIPT, digest="fast")
    accurate = ScriptedRelations(rule=lambda old, new: Relation.NSO, digest="accurate")
    cascade = CascadeRelationModel(fast, accurate, 0.5)
    found = cascade.predict_proba([SURE, UNSURE, SURE])
    assert accurate.calls == [[UNSURE]]
    assert np.array_equal(found[[0, 2]], fast.predict_proba([SURE, SURE]))
    assert np.array_equal(found[1], accurate.predict_proba([UNSURE])[0])
    assert (cascade.seen, cascade.asked_again, cascade.digest) == (3, 1, "fast>accurate@0.5")


def test_the_ends_of_the_margin_are_one_model_alone() -> None:
    fast, accurate = ScriptedRelations(SCRIPT), ScriptedRelations(rule=lambda old, new: Relation.NSO)
    alone = CascadeRelationModel(fast, accurate, 0.0)
    assert np.array_equal(alone.predict_proba([SURE, UNSURE]), fast.predict_proba([SURE, UNSURE]))
    assert accurate.calls == []
    both = CascadeRelationModel(fast, accurate, 1.1)
    assert np.array_equal(both.predict_proba([SURE, UNSURE]), accurate.predict_proba([SURE, UNSURE]))
    with pytest.raises(InputError, match=r"margin is -0\.1"):
        CascadeRelationModel(fast, accurate, -0.1)


@pytest.mark.parametrize("name", ["cascade:", "cascade:a,b", "cascade:a,b,c,0.5", "cascade:a,b,wide", "cascade:a,,1"])
def test_a_name_of_another_form_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="cascade"):
        load_cascade(name)


def test_a_cascade_is_loaded_by_name_and_fills_a_store(adapter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROAM_BACKEND", raising=False)
    name = f"cascade:{adapter}@torch,{adapter}@torch,0.9"
    with Memory.open(":memory:", manager=load_manager(name), embedder=HashEmbedder()) as memory:
        decision = [memory.add(text, user="ana") for text in FACTS[:4]][-1]
        assert {judgement.model for judgement in decision.judgements} <= {load_cascade(name).digest, "exact"}
    with pytest.raises(InputError, match="ADAPTER@BACKEND"):
        load_manager(name, backend="torch")


class Plain:
    """The plain path: every pair in a pass of its own, padded to nothing, nothing kept."""

    def __init__(self, model: PairClassifier) -> None:
        self.model, self.digest, self.thresholds = model, model.digest, model.thresholds

    def predict_proba(self, pairs: list[Pair]) -> np.ndarray:
        return np.concatenate([self.model.predict_proba([pair]) for pair in pairs])


def test_a_store_filled_in_few_passes_equals_the_plain_path(adapter: Path) -> None:
    """Length buckets, deduplication, the judgement cache and candidates foreseen, against one pair a pass."""
    model = TorchRelationModel.load(adapter, device="cpu")
    batch = [{"text": text, "user": f"u{number % 2}", "id": f"{number:02d}"} for number, text in enumerate(FACTS * 2)]
    outcomes = []
    for manager, many in ((model, True), (Plain(model), False)):
        with Memory.open(":memory:", manager=manager, embedder=HashEmbedder(), k=6) as memory:
            decisions = memory.add_many(batch) if many else [memory.add(**item) for item in batch]
            roles = [(d.observation_id, d.relation, d.primary_id, d.demoted_ids, d.matched_ids) for d in decisions]
            rows = [list(j.probabilities.values()) for d in decisions for j in d.judgements]
            outcomes.append((roles, [memory.primaries(user=user) for user in ("u0", "u1")], rows))
            passes = memory.stats.forward_passes
            assert passes < 8 if many else passes > 30
    (roles, views, rows), (plain_roles, plain_views, plain_rows) = outcomes
    assert roles == plain_roles
    assert views == plain_views
    assert np.abs(np.array(rows) - np.array(plain_rows)).max() < 1e-5


def test_swaps_are_judged_at_low_margins_alone(adapter: Path) -> None:
    model = TorchRelationModel.load(adapter, device="cpu")
    pairs = [Pair(pair.old, pair.new) for pair in toy_pairs(20, 4, "x")]
    forward = model._forward
    once = forward(pairs)
    middle = float(np.median(margins(softmax(once))))
    model.card = replace(model.card, swap_margin=middle)
    batches: list[list[Pair]] = []

    def count(batch: list[Pair]) -> np.ndarray:
        batches.append(batch)
        return forward(batch)

    model._forward = count  # type: ignore[assignment,method-assign]
    found = model.predict_logits(pairs)
    sure = margins(softmax(once)) >= middle
    assert batches == [pairs, [Pair(p.new, p.old) for p, one in zip(pairs, sure, strict=True) if not one]]
    assert 0 < len(batches[1]) < len(pairs)
    assert np.array_equal(found[sure], once[sure])


def test_commands_choose_the_manager_that_they_are_told(adapter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from roam.cli_manager import LazyRelationModel, choose_manager

    plain = choose_manager(str(adapter))
    assert isinstance(plain.manager.relation_model, LazyRelationModel)
    assert plain.fusion == "auto"
    chosen = choose_manager(f"cascade:{adapter}@torch,{adapter}@torch,0.9")
    assert isinstance(chosen.manager.relation_model, CascadeRelationModel)
    with pytest.raises(InputError, match="name a backend for each model"):
        choose_manager(f"cascade:{adapter},{adapter},0.9", backend="torch")
    monkeypatch.setattr("roam.cli_manager.load_manager", lambda name: name)
    assert choose_manager("served") == ("served", "manager")
