"""MEME episodes: facts that change, cascade and are deleted over sessions, and questions after the change.

File format (JSON Lines or one JSON array): `episode_id, atoms[{id, time, entity, kind, text, text3p?, supersedes?}],
questions[{phase, task, question, answer, gold_atom_ids[]}]`. `kind` is fact, exact, dependent, rule, update, change or
delete; `text3p` is the text about "the user", preferred where it is there. Only the questions of phase "after" are
asked (the paper's MEME-Post); those without a supporting atom can't be measured and are counted. MEME's generator is
under the MIT licence, its data under CC BY 4.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from eval.record_files import Record, iso_time, read_records, require_list, require_text, require_unique
from eval.store_run import Fact, Question, Stream

KINDS = ("fact", "exact", "dependent", "rule", "update", "change", "delete")
TASKS = ("Cas", "Abs", "Tr", "Del", "Agg", "ER")
"""Question types in the order of the paper's Table 7."""


@dataclass(frozen=True, slots=True)
class MemeEpisode:
    """One stream, the kind of each atom, and which atom each update, change or deletion replaces."""

    stream: Stream
    kinds: Mapping[str, str]
    supersedes: Mapping[str, str]
    unsupported: int

    def chains(self) -> list[tuple[str, ...]]:
        """Atoms that replace each other, oldest first; chains that end in a deletion are left out."""
        successor = {old: new for new, old in self.supersedes.items()}
        found = []
        for start in successor:
            if start in self.supersedes:
                continue
            chain = [start]
            while chain[-1] in successor:
                chain.append(successor[chain[-1]])
            if self.kinds[chain[-1]] != "delete":
                found.append(tuple(chain))
        return found

    def deletions(self) -> list[tuple[str, str]]:
        """(deleted atom, atom that asks for it)."""
        return [(old, new) for new, old in self.supersedes.items() if self.kinds[new] == "delete"]


def read_meme(path: str | Path) -> list[MemeEpisode]:
    """Read a MEME file; `DataError` names the first bad episodes and counts all of them."""
    return read_records(path, _parse, "MEME episodes", "eval/meme_episodes.py")


def _parse(row: Record) -> MemeEpisode:
    identifier = str(row["episode_id"])
    atoms = require_list(row, "atoms")
    facts = [
        Fact(str(a["id"]), require_text(a, "text3p" if a.get("text3p") else "text"), iso_time(a["time"])) for a in atoms
    ]
    ids = frozenset(fact.id for fact in facts)
    require_unique([fact.id for fact in facts], "atom id")
    kinds = {str(atom["id"]): str(atom["kind"]) for atom in atoms}
    for kind in kinds.values():
        if kind not in KINDS:
            raise ValueError(f"kind {kind!r}: use one of {', '.join(KINDS)}")
    supersedes = {str(atom["id"]): str(atom["supersedes"]) for atom in atoms if atom.get("supersedes")}
    _check_supersedes(supersedes, [fact.id for fact in facts])
    asked = [q for q in require_list(row, "questions") if q.get("phase", "after") == "after"]
    questions = [_question(f"{identifier}.q{number}", q, ids) for number, q in enumerate(asked)]
    supported = tuple(question for question in questions if question.gold)
    facts.sort(key=lambda fact: fact.time or "")
    stream = Stream(identifier, tuple(facts), supported)
    return MemeEpisode(stream, kinds, supersedes, len(questions) - len(supported))


def _check_supersedes(supersedes: Mapping[str, str], order: list[str]) -> None:
    """ValueError unless every atom replaces one that stands before it and no atom is replaced twice."""
    require_unique(list(supersedes.values()), "superseded atom")
    place = {identifier: number for number, identifier in enumerate(order)}
    for new, old in supersedes.items():
        if place.get(old, len(order)) >= place[new]:
            raise ValueError(f"{new} supersedes {old!r}, which is no earlier atom of the episode")


def _question(identifier: str, row: Record, ids: frozenset[str]) -> Question:
    gold = tuple(str(each) for each in require_list(row, "gold_atom_ids"))
    unknown = [each for each in gold if each not in ids]
    if unknown:
        raise ValueError(f"question {identifier} needs {unknown[0]!r}, which is no atom of the episode")
    if row["task"] not in TASKS:
        raise ValueError(f"task {row['task']!r}: use one of {', '.join(TASKS)}")
    return Question(identifier, str(row["task"]), require_text(row, "question"), str(row.get("answer", "")), gold)
