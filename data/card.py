"""Write the data card: `python -m data.card` fills the tables of data/README.md and writes data/card.json.

The prose of data/README.md stands outside the `<!-- card:NAME -->` ... `<!-- /card:NAME -->` markers and is kept. All
figures come from the files; the baselines are fitted anew on the family pairs of `python -m data.build` when these are
there. Exit code 0: written, or with --check up to date; 1: --check found stale figures; 2: a file cannot be read.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from data.build import ordered_pairs
from data.card_tables import SECTIONS
from data.check import check_files
from data.families import Family, read_families
from data.findings import by_kind
from data.fusion import FusionExample, read_fusion
from data.pairs import LabelledPair, file_sha256, normalise_text, read_pairs
from data.topics import topics
from roam.arguments import ArgumentParser
from roam.errors import DataError, RoamError
from roam.relations import RELATIONS

ROOT = Path(__file__).parent
FAMILIES, PAIRS, FUSION = "families.jsonl", "relation_test_843.jsonl", ("fusion_train.jsonl", "fusion_test.jsonl")
DERIVED_TRAIN = Path("derived") / "train.jsonl"
SEED = 0

# Case counts: "US" is a country, and a word at the start of a sentence may have a capital.
_FIRST_PERSON = re.compile(r"\b(I|[Mm]e|[Mm]y|[Mm]ine|[Mm]yself|[Ww]e|us|[Oo]urs?|[Oo]urselves)\b")
_USER = re.compile(r"\buser\b", re.IGNORECASE)
_PRONOUNS = frozenset({"he", "she", "his", "her", "hers", "they", "their"})
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")


class Registers:
    """Which of four ways of speaking of the user a fact uses; the first rule that fits counts.

    first person: holds I, me, my, we, our and the like. the user: holds the word "user". name or pronoun: the first
    word is he, she, his, her, they, their, or a name, that is a word which the files also write with a capital inside
    a sentence and never in lower case. no subject: everything else ("Has a dog.").
    """

    NAMES = ("no subject", "the user", "first person", "name or pronoun")

    def __init__(self, texts: Iterable[str]) -> None:
        lower: set[str] = set()
        inner: set[str] = set()
        for text in texts:
            for at, word in enumerate(_WORD.findall(text)):
                if word[:1].islower():
                    lower.add(word)
                elif at:
                    inner.add(word.lower())
        self._names = inner - lower

    def of(self, text: str) -> str:
        if _FIRST_PERSON.search(text):
            return "first person"
        if _USER.search(text):
            return "the user"
        first = next(iter(_WORD.findall(text)), "").lower()
        return "name or pronoun" if first in _PRONOUNS or first in self._names else "no subject"


def figures(root: Path = ROOT) -> dict[str, object]:
    """Everything in the card that follows from the files alone, without fitting anything; JSON types only."""
    families = read_families(root / FAMILIES)
    pairs = read_pairs(root / PAIRS)
    fusion = {name: read_fusion(root / name) for name in FUSION}
    paths = [root / name for name in (FAMILIES, PAIRS, *FUSION)]
    texts = [text for family in families for text in family.texts()]
    texts += [text for pair in pairs for text in (pair.old, pair.new)]
    registers = Registers(texts)
    rows = [len(families), len(pairs), *map(len, fusion.values())]
    return {
        "files": {
            path.name: {"rows": count, "bytes": path.stat().st_size, "sha256": file_sha256(path)}
            for path, count in zip(paths, rows, strict=True)
        },
        "families": family_figures(families, registers),
        "pairs": pair_figures(pairs, registers),
        "fusion": {name: fusion_figures(examples) for name, examples in fusion.items()},
        "findings": finding_figures(paths),
    }


def finding_figures(paths: Sequence[Path]) -> dict[str, dict[str, int]]:
    """Findings of data.check (giveaways left to the baselines) by kind and by the files that they stand in."""
    out: dict[str, dict[str, int]] = {}
    for kind, found in by_kind(check_files(paths, with_giveaways=False).findings).items():
        where = (" and ".join(dict.fromkeys(Path(place.path).name for place in finding.places)) for finding in found)
        out[kind] = ranked(where)
    return out


def family_figures(families: Sequence[Family], registers: Registers) -> dict[str, object]:
    """Texts, lengths and registers by slot, domains and topics, and how many ordered pairs the rules imply."""
    slots: dict[str, list[str]] = {}
    for family in families:
        for slot, texts in family.slots().items():
            slots.setdefault(slot, []).extend(texts)
    implied = Counter(dict.fromkeys(RELATIONS, 0))
    for family in families:
        implied.update({relation: len(found) for relation, found in ordered_pairs(family).items()})
    everything = [text for texts in slots.values() for text in texts]
    return {
        "slots": {slot: {"texts": len(texts), "words": lengths(texts)} for slot, texts in slots.items()},
        "texts": len(everything),
        "distinct_texts": len(set(map(normalise_text, everything))),
        "words": lengths(everything),
        "registers": {slot: count_registers(texts, registers) for slot, texts in slots.items()},
        "domains": ranked(family.domain for family in families),
        "topics": count_topics(family.domain for family in families),
        "implied_pairs": {relation.value: implied[relation] for relation in RELATIONS},
    }


def pair_figures(pairs: Sequence[LabelledPair], registers: Registers) -> dict[str, object]:
    """Counts by label, group, domain, topic and register (of OLD and NEW together), lengths of OLD and NEW by label."""
    by_label = {relation: [pair for pair in pairs if pair.label is relation] for relation in RELATIONS}
    texts = [text for pair in pairs for text in (pair.old, pair.new)]
    return {
        "labels": {relation.value: len(found) for relation, found in by_label.items()},
        "groups": len({pair.group for pair in pairs}),
        "distinct_texts": len(set(map(normalise_text, texts))),
        "domains": ranked(pair.domain or "" for pair in pairs),
        "domains_by_label": {
            relation.value: ranked(pair.domain or "" for pair in found) for relation, found in by_label.items()
        },
        "topics": count_topics(pair.domain or "" for pair in pairs),
        "registers": {
            relation.value: count_registers([text for pair in found for text in (pair.old, pair.new)], registers)
            for relation, found in by_label.items()
        },
        "same_register": sum(registers.of(pair.old) == registers.of(pair.new) for pair in pairs),
        "words": {
            relation.value: {"old": lengths([p.old for p in found]), "new": lengths([p.new for p in found])}
            for relation, found in by_label.items()
        },
    }


def fusion_figures(examples: Sequence[FusionExample]) -> dict[str, object]:
    """Counts by relation, number of inputs and tag, and lengths."""
    relations = Counter(example.relation for example in examples)
    return {
        "relations": {relation.value: relations[relation] for relation in RELATIONS if relations[relation]},
        "inputs": {str(count): found for count, found in sorted(Counter(len(e.inputs) for e in examples).items())},
        "undated_inputs": sum(item.time is None for example in examples for item in example.inputs),
        "tags": ranked(tag for example in examples for tag in example.tags),
        "input_words": lengths([item.text for example in examples for item in example.inputs]),
        "target_words": lengths([example.target for example in examples]),
    }


def baselines(root: Path = ROOT) -> dict[str, object]:
    """Lexical baselines on the 843: cross-validated by group, and fitted on the derived family pairs if they exist."""
    from data.baselines import FOLDS, cross_validated_baselines, lexical_baselines

    pairs = read_pairs(root / PAIRS)
    out: dict[str, object] = {
        "seed": SEED,
        "cross_validated": {"folds": FOLDS, "scores": cross_validated_baselines(pairs, SEED)},
        "from_families": None,
    }
    train = root / DERIVED_TRAIN
    if train.exists():
        train_pairs = read_pairs(train)
        out["from_families"] = {
            "train": {"pairs": len(train_pairs), "sha256": file_sha256(train)},
            "scores": lexical_baselines(train_pairs, pairs, SEED),
        }
    return out


def lengths(texts: Sequence[str]) -> dict[str, float]:
    """Words (separated by spaces) a text: mean, median, 5th and 95th percentile, longest; empty without texts."""
    if not texts:
        return {}
    counts = np.array([len(text.split()) for text in texts])
    low, middle, high = np.percentile(counts, [5, 50, 95])
    mean = round(float(counts.mean()), 1)
    return {"mean": mean, "median": float(middle), "p5": float(low), "p95": float(high), "max": float(counts.max())}


def count_registers(texts: Iterable[str], registers: Registers) -> dict[str, int]:
    counts = Counter(map(registers.of, texts))
    return {name: counts[name] for name in Registers.NAMES}


def count_topics(domains: Iterable[str]) -> dict[str, int]:
    """Rows by topic of data/topics.py; a domain can touch several topics, "any" are domains that can hold anything."""
    return ranked(topic for domain in domains for topic in (topics(domain) or {"any"}))


def ranked(values: Iterable[str]) -> dict[str, int]:
    """Counts, the most frequent first, then by name."""
    return dict(sorted(Counter(values).items(), key=lambda item: (-item[1], item[0])))


def fill(text: str, name: str, table: str) -> str:
    """`text` with `table` between the markers of section `name`; `DataError` when these are missing or there twice."""
    pattern = re.compile(rf"(<!-- card:{name} -->\n).*?(<!-- /card:{name} -->)", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise DataError(f"the card needs one '<!-- card:{name} -->' line followed by one '<!-- /card:{name} -->' line")
    return pattern.sub(lambda match: f"{match[1]}{table}\n{match[2]}", text)


def render(text: str, card: dict[str, object]) -> str:
    """The card's Markdown `text` with every generated section rewritten from `card`."""
    for name, table in SECTIONS.items():
        text = fill(text, name, table(card))
    return text


def stale(root: Path = ROOT) -> list[str]:
    """Parts of card.json and README.md that no longer say what the files say; baselines are not refitted."""
    try:
        card = json.loads((root / "card.json").read_text(encoding="utf-8"))
        text = (root / "README.md").read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise DataError(f"{error.filename}: no such file; run python -m data.card") from None
    out = [f"card.json: {name}" for name, value in figures(root).items() if card.get(name) != value]
    return out if out or render(text, card) == text else ["README.md: its tables differ from card.json"]


def write(root: Path = ROOT, announce: Callable[[str], None] = print) -> dict[str, object]:
    """Write card.json and the tables of README.md under `root`; returns the content of card.json."""
    announce("counting")
    card = figures(root)
    announce("fitting the lexical baselines")
    card["baselines"] = baselines(root)
    readme = root / "README.md"
    text = render(readme.read_text(encoding="utf-8"), card)
    (root / "card.json").write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    readme.write_text(text, encoding="utf-8")
    announce(f"wrote {readme} and {root / 'card.json'}")
    return card


def main(argv: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(
        prog="python -m data.card",
        description="Write the tables of data/README.md and data/card.json from the data files.",
        epilog="example: python -m data.build && python -m data.card",
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the card is out of date")
    args = parser.parse_args(argv)
    try:
        if not args.check:
            write()
            return 0
        out_of_date = stale()
    except RoamError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name in out_of_date:
        print(f"out of date: {name}; run python -m data.card")
    return 1 if out_of_date else 0


if __name__ == "__main__":
    raise SystemExit(main())
