"""Candidate pairs from PersonaMem-v2: `python -m data.personamem FOLDER --out candidates.jsonl`.

A persona file is one JSON object {persona id: {...}} as released: lists of preferences, `preference_updates` (old text
to new text), and conversations by type, each with its `preference`, and with `prev_pref` where it is an update.
Candidates are pairs of statements of one persona, as the paper's protocol for its 843 pairs needs them (section 3.5.3):
chains of updates, near neighbours by embedding, and random ones. What a persona says of other people, personal data
such as addresses, and requests to forget are left out. `python -m data.label` has teachers label the candidates.

The data set is other people's: keep what comes of it to yourself unless its licence lets you do more.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import random
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from data.pairs import normalise_text
from roam.arguments import ArgumentParser
from roam.errors import DataError, InputError, RoamError
from roam.interfaces import Embedder
from roam.validation import clean_text
from roam.writing import write_lines

LISTS = ("stereotypical_preferences", "anti_stereotypical_preferences", "therapy_background",
         "health_and_medical_conditions")  # fmt: skip
NOT_OWN = ("ask_to_forget",)
"""Preference types that state nothing about the user."""
TOO_CLOSE = 0.999
"""Cosine above which two statements are the same words."""


class Origin(StrEnum):
    """Why two statements were put side by side."""

    UPDATE = "update"
    NEAR = "near"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class Candidate:
    """An ordered pair without a label; `group` is the persona."""

    id: str
    old: str
    new: str
    group: str
    source: str


@dataclass(frozen=True, slots=True)
class Persona:
    """One persona: its statements in file order, and its updates (old, new) in the order told."""

    id: str
    statements: tuple[str, ...]
    updates: tuple[tuple[str, str], ...]


def read_personas(paths: Iterable[Path]) -> list[Persona]:
    """The personas of files, or of all *.json of folders; `DataError` for a file that is none, or without any."""
    files = [file for path in paths for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]
    personas: dict[str, Persona] = {}
    for file in files:
        for persona in _read_file(file):
            if persona.id in personas:
                raise DataError(f"{file}: persona {persona.id!r} is in another file too; give one release only")
            personas[persona.id] = persona
    if not personas:
        raise DataError(f"no persona file in {', '.join(map(str, paths)) or 'nothing'}: give PersonaMem-v2's raw files")
    return list(personas.values())


def _read_file(file: Path) -> Iterator[Persona]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: cannot be read as JSON ({error}); give PersonaMem-v2's raw files") from error
    if not isinstance(content, Mapping) or not all(isinstance(entry, Mapping) for entry in content.values()):
        raise DataError(f"{file}: not an object of personas by id; give PersonaMem-v2's raw files as released")
    for identifier, entry in content.items():
        try:
            persona = _persona(f"{file.stem}:{identifier}" if str(identifier).isdecimal() else str(identifier), entry)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise DataError(f"{file}: persona {identifier!r}: {error}") from error
        if persona.statements:
            yield persona


def _persona(identifier: str, entry: Mapping[str, Any]) -> Persona:
    conversations = [item for kind in (entry.get("conversations") or {}).values() for item in kind]
    own = [item for item in conversations if item.get("who", "self") == "self" and item.get("pref_type") not in NOT_OWN]
    of_others = {item.get("preference") for item in conversations if item.get("who", "self") != "self"}
    updates = [(old, new) for old, new in (entry.get("preference_updates") or {}).items()]
    updates += [
        (item["prev_pref"], item["preference"]) for item in own if item.get("updated") and item.get("prev_pref")
    ]
    texts = [text for name in LISTS for text in entry.get(name) or [] if text not in of_others]
    texts += [item["preference"] for item in own if item.get("preference")]
    texts += [text for update in updates for text in update]
    return Persona(
        identifier,
        tuple(dict.fromkeys(_statement(text) for text in texts)),
        tuple(dict.fromkeys((_statement(old), _statement(new)) for old, new in updates)),
    )


def _statement(text: object) -> str:
    """One statement as a line; ValueError for what is no text or too long for a fact."""
    return clean_text(text, "a preference")


def update_chains(updates: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pairs (earlier, later) within each chain of updates: neighbours first, then the steps between."""
    later = dict(updates)
    pairs = list(updates)
    for start in later:
        chain, current = [start], start
        while current in later and later[current] not in chain:
            current = later[current]
            chain.append(current)
        pairs += [(old, new) for old, new in itertools.combinations(chain, 2)]
    return list(dict.fromkeys(pairs))


def near_pairs(statements: Sequence[str], embedder: Embedder, per_statement: int) -> list[tuple[str, str]]:
    """Each statement with its nearest ones of the same persona, in file order, each pair once."""
    if len(statements) < 2 or per_statement < 1:
        return []
    vectors = embedder.embed(list(statements))
    scores = vectors @ vectors.T
    places: dict[tuple[int, int], None] = {}
    for one in range(len(statements)):
        order = (int(two) for two in (-scores[one]).argsort(kind="stable") if two != one)
        near = (two for two in order if scores[one, two] < TOO_CLOSE)
        for two in itertools.islice(near, per_statement):
            places.setdefault((min(one, two), max(one, two)))
    return [(statements[one], statements[two]) for one, two in places]


def random_pairs(statements: Sequence[str], count: int, draw: random.Random) -> list[tuple[str, str]]:
    """`count` different pairs, fewer where there are not as many."""
    if len(statements) < 2:
        return []
    possible = len(statements) * (len(statements) - 1) // 2
    found: dict[tuple[int, int], None] = {}
    while len(found) < min(count, possible):
        one, two = sorted(draw.sample(range(len(statements)), 2))
        found.setdefault((one, two))
    return [(statements[one], statements[two]) for one, two in found]


def candidates(
    personas: Sequence[Persona], embedder: Embedder, *, near: int, random_per_persona: int, seed: int
) -> list[Candidate]:
    """The candidate pairs of all personas; equal seed, equal pairs, whatever other personas there are.

    A pair is drawn once, for the first reason that applies. Updates keep their direction; the order of all others is
    left to chance, so that both directions of a subsumption occur.
    """
    from tqdm import tqdm

    out: list[Candidate] = []
    for persona in tqdm(personas, desc="candidates", unit="persona", disable=None):
        draw = random.Random(f"{seed}:{persona.id}")
        seen: set[frozenset[str]] = set()
        for origin, pairs in (
            (Origin.UPDATE, update_chains(persona.updates)),
            (Origin.NEAR, near_pairs(persona.statements, embedder, near)),
            (Origin.RANDOM, random_pairs(persona.statements, random_per_persona, draw)),
        ):
            for old, new in pairs:
                key = frozenset((normalise_text(old), normalise_text(new)))
                if len(key) < 2 or key in seen:
                    continue
                seen.add(key)
                if origin is not Origin.UPDATE and draw.random() < 0.5:
                    old, new = new, old
                out.append(Candidate(_name(persona.id, old, new), old, new, persona.id, f"personamem-{origin}"))
    return out


def _name(persona: str, old: str, new: str) -> str:
    return "pm-" + hashlib.sha256("\0".join((persona, old, new)).encode()).hexdigest()[:12]


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ArgumentParser(
        prog="python -m data.personamem",
        description="Draw candidate pairs from PersonaMem-v2 persona files, for data.label to have labelled.",
        epilog="example: python -m data.personamem PersonaMem-v2/data/raw_data --out candidates.jsonl",
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE", help="persona files, or folders of them")
    parser.add_argument("--out", type=Path, required=True, help="the candidate file to write (JSONL)")
    parser.add_argument("--near", type=int, default=2, help="nearest statements a statement (default: %(default)s)")
    parser.add_argument("--random", type=int, default=10, help="random pairs a persona (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--embedder", help="another sentence encoder: short name, hub id or folder")
    args = parser.parse_args(argv)
    for option in ("near", "random"):
        if getattr(args, option) < 0:
            parser.error(f"--{option} is {getattr(args, option)}: use 0 or more")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Draw and write the candidates; 2 on bad input, with one line on standard error."""
    from roam.embedders import DEFAULT_EMBEDDER, load_embedder

    args = parse_args(argv)
    try:
        personas = read_personas(args.paths)
        embedder = load_embedder(args.embedder or DEFAULT_EMBEDDER)
        found = candidates(personas, embedder, near=args.near, random_per_persona=args.random, seed=args.seed)
        if not found:
            raise InputError(
                "no candidate pair: give personas with two statements or more, or raise --near and --random"
            )
        write_lines(args.out, (json.dumps(asdict(candidate), ensure_ascii=False) for candidate in found))
    except RoamError as error:
        print(f"data.personamem: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    counts = {origin: sum(c.source.endswith(origin) for c in found) for origin in Origin}
    told = ", ".join(f"{count} {origin}" for origin, count in counts.items())
    print(f"{len(found)} candidate pairs of {len(personas)} personas ({told}) in {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
