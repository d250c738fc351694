"""A store behind the guard: every fuser is checked, fallbacks are counted and logged, batches are fused together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from roam import Memory
from roam.errors import AdapterError, InputError
from roam.events import EventKind
from roam.fusion import DeterministicFuser, GuardReason
from roam.interfaces import Fuser
from roam.records import FusionRequest
from tests.stubs import HashEmbedder, ScriptedRelations

PEOPLE = ("Ada", "Ben", "Cem", "Dov", "Eva", "Fay", "Gil", "Hal")
CITIES = ("Ghent", "Lyon", "Oslo", "Riga", "Turin", "Porto")


class Wordy:
    """A learned fuser in small: what the rules write under another head, or nonsense for what it is told to spoil."""

    name = "wordy"

    def __init__(self, spoil: str = "\0") -> None:
        self.spoil = spoil
        self.batches: list[int] = []

    def fuse(self, requests: Sequence[FusionRequest]) -> list[str]:
        self.batches.append(len(requests))
        views = DeterministicFuser().fuse(requests)
        views = [view.replace("home city", "place of residence") for view in views]
        return [view.replace("current", "until now") if self.spoil in view else view for view in views]


def relate(old: str, new: str) -> str:
    """One conflict for two homes of one person, nothing else."""
    return "CON" if old.split(" lives")[0] == new.split(" lives")[0] and old != new else "IND"


def open_memory(fusion: str | Path | Fuser) -> Memory:
    return Memory.open(
        ":memory:", manager=ScriptedRelations(rule=relate), embedder=HashEmbedder(), fusion=fusion, floor=-1.0, k=50
    )


def moves(people: int, each: int = 2) -> list[dict[str, object]]:
    """First homes of all, then second ones, and so on."""
    return [
        {"text": f"{name} lives in {city}.", "user": "u", "observed_at": f"202{turn}-01-01", "id": f"{name}-{turn}"}
        for turn, city in enumerate(CITIES[:each])
        for name in PEOPLE[:people]
    ]


def views_of(memory: Memory) -> list[str]:
    return sorted(view.text for view in memory.primaries(user="u"))


def test_an_accepted_proposal_is_the_view() -> None:
    with open_memory(Wordy()) as memory:
        memory.add_many(moves(1))
        assert views_of(memory) == ["Ada's place of residence: Ghent -> Lyon (current, as of 2021-01-01)"]
        assert memory.stats.fusion_fallbacks == 0
        assert memory.verify().ok


def test_a_refused_proposal_is_counted_and_logged_with_its_reason() -> None:
    with open_memory(Wordy(spoil="Lyon")) as memory:
        memory.add_many(moves(2))
        assert views_of(memory) == [
            f"{name}'s home city: Ghent -> Lyon (current, as of 2021-01-01)" for name in PEOPLE[:2]
        ]
        detail = f"fuser wordy: {GuardReason.CHAIN.value}"
        assert memory.stats.fallback_reasons == {detail: 2}
        assert memory.stats.fusion_fallbacks == 2
        events = [event for event in memory.history(user="u") if event.kind is EventKind.FUSION_FALLBACK]
        assert [event.detail for event in events] == [detail, detail]
        assert memory.verify().ok


def test_views_of_a_batch_are_fused_in_few_calls_and_come_out_as_one_by_one() -> None:
    facts, batched, single = moves(8, each=3), Wordy(spoil="Dov"), Wordy(spoil="Dov")
    with open_memory(batched) as together, open_memory(single) as alone:
        together.add_many(facts)
        for fact in facts:
            alone.add(**fact)  # type: ignore[arg-type]
        assert views_of(together) == views_of(alone)
        assert together.stats.fusion_calls == alone.stats.fusion_calls == 16
        assert together.stats.fallback_reasons == alone.stats.fallback_reasons
    assert single.batches == [1] * 16
    assert len(batched.batches) <= 4
    assert max(batched.batches) >= 7


@pytest.mark.parametrize("fusion", ["auto", "deterministic"])
def test_rules_write_the_views_by_default(fusion: str) -> None:
    with open_memory(fusion) as memory:
        memory.add_many(moves(1))
        assert views_of(memory) == ["Ada's home city: Ghent -> Lyon (current, as of 2021-01-01)"]
        assert memory.stats.fuser_batches == 0


def test_without_fusion_a_view_is_the_survivors_text() -> None:
    with open_memory("off") as memory:
        memory.add_many(moves(1))
        assert views_of(memory) == ["Ada lives in Lyon."]
        assert memory.stats.fusion_calls == 0


def test_an_adapter_folder_is_checked_when_the_store_is_opened(tmp_path: Path) -> None:
    (tmp_path / "roam.json").write_text(json.dumps({"kind": "relation"}), encoding="utf-8")
    with pytest.raises(AdapterError):
        open_memory(tmp_path)
    with pytest.raises(InputError, match="adapter folder or a fuser"):
        open_memory("nowhere")
