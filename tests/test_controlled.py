"""Rules of controlled episodes: leaks, the checker, the filter and the similarity audit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from data.families import read_families
from data.pairs import normalise_text
from eval import controlled
from eval.controlled_rules import embedding_leak, episode_problems, gives_answer, lexical_leak, vectors_of
from eval.episodes import Episode, EpisodeMemory, MemoryRole, parse_episode, read_episodes
from roam.errors import DataError
from tests.benchmark_samples import write_lines
from tests.stubs import HashEmbedder

BIRDS = ("heron", "stork", "swift", "wren", "rook", "kite", "teal", "crane", "gull", "finch")


def record(question_type: str = "single-session-user", candidates: int = 8) -> dict[str, Any]:
    """A sound episode about a violin teacher; Type II confounders name former teachers."""
    kind = "II" if question_type == "knowledge-update" else "I"
    texts = (
        [f"The user takes violin lessons with {bird.title()} Maddox." for bird in BIRDS]
        if kind == "II"
        else [f"The user wonders whether a {bird} would like violin lessons." for bird in BIRDS]
    )
    return {
        "question_id": f"q-{question_type}",
        "question_type": question_type,
        "question": "Who gives the user violin lessons?",
        "answer": "Petra Hulst",
        "memories": [
            *({"id": f"b{n}", "text": f"The user painted shelf number {n} in the cellar.", "time": "2024-01-01",
               "role": "background", "ctype": None} for n in range(6)),
            *({"id": f"c{n}", "text": text, "time": f"2024-02-{n + 1:02}", "role": "confounder", "ctype": kind}
              for n, text in enumerate(texts[:candidates])),
            {"id": "g0", "text": "The user takes violin lessons with Petra Hulst.", "time": "2024-03-01",
             "role": "gold", "ctype": None},
        ],
    }  # fmt: skip


def with_confounder(
    text: str, question_type: str = "single-session-user", **change: Any
) -> tuple[EpisodeMemory, Episode]:
    """A sound episode whose first confounder says `text`, and that confounder."""
    episode = parse_episode(record(question_type))
    memory = replace(next(m for m in episode.memories if m.id == "c0"), text=text, **change)
    return memory, replace(episode, memories=tuple(memory if m.id == "c0" else m for m in episode.memories))


@pytest.mark.unit
@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        ("The teacher is Petra Hulst, they say.", "Petra Hulst", True),
        ("Hulst, whose first name is Petra, teaches.", "Petra Hulst", True),
        ("Petra teaches.", "Petra Hulst", False),
        ("The user has 14 cats.", "4", False),
        ("The user has 4 cats.", "4", True),
        ("It cost $1,200 in all.", "$1,200", True),
        ("Nothing.", "", False),
    ],
)
def test_a_text_that_gives_the_answer(text: str, answer: str, expected: bool) -> None:
    assert gives_answer(text, answer) is expected


@pytest.mark.unit
@pytest.mark.parametrize(
    ("text", "change", "said"),
    [
        ("The user asks who teaches the violin.", {}, None),
        ("Petra Hulst was at the party.", {}, "states the answer"),
        ("The user painted shelf number 3 in the cellar.", {}, "the same text as b3"),
        ("The user asks who teaches the violin.", {"type": "II"}, "take type I"),
    ],
)
def test_lexical_leaks(text: str, change: dict[str, Any], said: str | None) -> None:
    reason = lexical_leak(*with_confounder(text, **change))
    assert reason is None if said is None else reason is not None and said in reason


@pytest.mark.unit
def test_an_answer_that_the_question_offers_may_be_named() -> None:
    memory, episode = with_confounder("Petra Hulst was at the party.")
    assert lexical_leak(memory, replace(episode, question="Who teaches the user, Petra Hulst or Ana Vey?")) is None


@pytest.mark.unit
def test_obsolete_values_are_dated_before_the_gold_memory() -> None:
    text = "The user takes violin lessons with Otto Maddox."
    assert lexical_leak(*with_confounder(text, "knowledge-update")) is None
    late = lexical_leak(*with_confounder(text, "knowledge-update", time="2024-03-01"))
    assert late is not None
    assert "before the latest gold" in late


class Compass:
    """An encoder that knows a few texts: unit vectors in the plane by their angle in degrees."""

    digest, dimension = "compass", 2

    def __init__(self, angles: dict[str, float]) -> None:
        self.angles = angles

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        turned = np.radians([self.angles.get(text, 180.0) for text in texts])
        return np.stack([np.cos(turned), np.sin(turned)], axis=1).astype(np.float32)


@pytest.mark.unit
@pytest.mark.parametrize(
    ("angle", "kind", "leaks"),
    [(5, "single-session-user", True), (60, "single-session-user", False), (5, "knowledge-update", False)],
)
def test_a_gold_fact_in_other_words_leaks(angle: float, kind: str, leaks: bool) -> None:
    memory, episode = with_confounder("Violin is taught to them by P. H.", kind)
    gold = next(m.text for m in episode.memories if m.role is MemoryRole.GOLD)
    vectors = vectors_of([episode], Compass({gold: 0.0, memory.text: angle}))  # type: ignore[arg-type]
    assert (embedding_leak(memory, episode, vectors) is not None) is leaks


@pytest.mark.unit
@pytest.mark.parametrize("kind", ["single-session-user", "knowledge-update"])
def test_a_sound_episode_has_no_problems(tmp_path: Path, kind: str) -> None:
    assert list(episode_problems(parse_episode(record(kind)))) == []
    path = write_lines(tmp_path / "e.jsonl", record(kind))
    assert controlled.check(path, [], 1, None) == []


@pytest.mark.unit
def test_the_checker_names_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = record(candidates=7) | {"question_id": "q2", "answer": "Wednesday"}
    bad["memories"][0] |= {"text": "The user is free on Wednesday.", "ctype": "I"}
    del bad["memories"][5]
    path, other = write_lines(tmp_path / "e.jsonl", record(), bad), write_lines(tmp_path / "o.jsonl", record())
    problems = "\n".join(controlled.check(path, [other], 60, None))
    for said in (
        "7 confounders", "5 background", "b0: a background memory that states the answer", "b0: ctype 'I'",
        "no gold memory holds the answer 'Wednesday'", "question 'Who gives the user violin lessons?' is there 2 times",
        "2 episodes: give at least 60", "'Who gives the user violin lessons?' says what q-single-session-user",
    ):  # fmt: skip
        assert said in problems or (said.startswith("'Who") and "violin lessons" in problems)
    assert controlled.main(["check", str(path), "--no-embedding"]) == 1
    assert "problems in" in capsys.readouterr().out
    derived = bad | {"derived": True}
    assert not any("no gold memory" in p for p in controlled.check(write_lines(path, derived), [], 1, None))


@pytest.mark.unit
def test_sentences_of_other_files_may_not_come_back(tmp_path: Path) -> None:
    other = record() | {"question_id": "theirs"}
    ours = json.loads(json.dumps(other).replace("violin", "cello").replace("Petra Hulst", "Ana Vey"))
    ours["question_id"] = "ours"
    ours["memories"][0]["text"] = "An old wooden rowing boat waits beside the northern jetty."
    other["memories"][0]["text"] = "An old wooden rowing boat waits beside that northern jetty."
    paths = [write_lines(tmp_path / f"{name}.jsonl", each) for name, each in (("a", ours), ("b", other))]
    (problem,) = [p for p in controlled.check(paths[0], [paths[1]], 1, None) if "rowing boat" in p]
    assert "ours" in problem
    assert "theirs" in problem


@pytest.mark.unit
def test_the_filter_keeps_the_first_eight_that_pass() -> None:
    pool = parse_episode(record(candidates=10))
    leaking = tuple(replace(m, text="Petra Hulst plays too.") if m.id == "c2" else m for m in pool.memories)
    short = replace(parse_episode(record(candidates=7)), id="short")
    kept, dropped = controlled.filter_pool([replace(pool, memories=leaking), short], HashEmbedder())
    assert [episode.id for episode in kept] == [pool.id]
    assert kept[0].ids(MemoryRole.CONFOUNDER) == {f"c{n}" for n in (0, 1, 3, 4, 5, 6, 7, 8)}
    assert any("c2 left out: states the answer" in line for line in dropped)
    assert any(line.startswith("short: left out, 7") for line in dropped)
    assert parse_episode(controlled.episode_record(kept[0])) == kept[0]


@pytest.mark.unit
def test_the_audit_by_hand() -> None:
    memories = (
        EpisodeMemory("g1", "g1", "2024-01-01", MemoryRole.GOLD, None),
        EpisodeMemory("g2", "g2", "2024-01-01", MemoryRole.GOLD, None),
        EpisodeMemory("c1", "c1", "2024-01-01", MemoryRole.CONFOUNDER, "I"),
        EpisodeMemory("c2", "c2", "2024-01-01", MemoryRole.CONFOUNDER, "I"),
        EpisodeMemory("c3", "c3", "2024-01-01", MemoryRole.CONFOUNDER, "I"),
    )
    episode = Episode("q", "multi-session", "question", "", memories)
    angles = {"question": 0.0, "g1": 60.0, "g2": 90.0, "c1": 0.0, "c2": 80.0, "c3": 120.0}
    found = controlled.audit([episode], Compass(angles))["I"]  # type: ignore[arg-type]
    assert found["confounder_query"] == pytest.approx((1 + np.cos(np.radians(80)) - 0.5) / 3, abs=1e-6)
    assert found["gold_query"] == pytest.approx(0.25, abs=1e-6)
    assert (found["above_one"], found["above_all"]) == (pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert "| Type I | paper, Type I | paper, Type II |" in controlled.audit_markdown(
        {"I": found}, "e.jsonl", "compass"
    )
    with pytest.raises(DataError, match="no confounders"):
        controlled.audit([replace(episode, memories=memories[:2])], HashEmbedder())


@pytest.mark.integration
def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from roam import embedders

    monkeypatch.setattr(embedders, "load_embedder", HashEmbedder)
    path, out = write_lines(tmp_path / "e.jsonl", record()), tmp_path / "kept.jsonl"
    assert controlled.main(["filter", str(path), "--out", str(out)]) == 0
    assert controlled.main(["audit", str(path)]) == 0
    assert "0.7149" in capsys.readouterr().out
    assert controlled.main(["filter", str(path), "--out", str(tmp_path)]) == 2
    assert controlled.main(["audit", str(tmp_path / "none")]) == 2


def test_our_own_episodes_are_sound() -> None:
    data = Path(__file__).parent.parent / "data"
    assert controlled.main(["check", str(data / "controlled.jsonl"), "--no-embedding", "--least", "60"]) == 0
    episodes = read_episodes(data / "controlled.jsonl")
    assert [episode.type for episode in episodes].count("II") == 20
    told = {normalise_text(memory.text) for episode in episodes for memory in episode.memories}
    families = {normalise_text(text) for family in read_families(data / "families.jsonl") for text in family.texts()}
    assert not told & families
