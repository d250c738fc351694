"""Segments, words and subject forms of view texts: what every fusion rule is built on."""

from __future__ import annotations

import re

from roam.fusion.lexicon import ABBREVIATIONS, NEGATIONS, NUMBER_WORDS, STOP_WORDS

_KEEPS_PERIOD = re.compile(r"(?:^|[\s(])(?:a\.m|p\.m|e\.g|i\.e|etc|Jr|Sr|Inc|Ltd|Co|U\.S|U\.K|Ph\.D)\.$")
_SENTENCE_END = re.compile(r'(?<=[^\s])[.!?]"? (?=["A-Z0-9])')
_WORD = re.compile(r"[^\W_]+(?:[.,:/'’-][^\W_]+)*[%+]?", re.UNICODE)


def tidy(text: str) -> str:
    """Return `text` on one line, runs of white space as single spaces."""
    return " ".join(text.split())


def split_segments(text: str) -> list[str]:
    """Split a view into its segments: at `"; "` and at sentence ends, never inside double quotes or brackets."""
    segments: list[str] = []
    for part in _split_outside_quotes(tidy(text)):
        segments.extend(_split_sentences(part))
    return [segment for segment in (strip_period(segment) for segment in segments) if segment]


def _split_outside_quotes(text: str) -> list[str]:
    parts: list[str] = []
    start, quoted, depth = 0, False, 0
    for index, char in enumerate(text):
        if char == '"':
            quoted = not quoted
        elif char in "([":
            depth += 1
        elif char in ")]":
            depth = max(0, depth - 1)
        elif char == ";" and not quoted and not depth and text[index + 1 : index + 2] == " ":
            parts.append(text[start:index].strip())
            start = index + 1
    parts.append(text[start:].strip())
    return parts


def _split_sentences(text: str) -> list[str]:
    sentences: list[str] = []
    start = 0
    for match in _SENTENCE_END.finditer(text):
        before = text[start : match.start()]
        last = before.rsplit(" ", 1)[-1].lstrip('("').lower()
        if text[match.start()] == "." and (last in ABBREVIATIONS or (len(last) == 1 and last.isalpha())):
            continue
        if before.count('"') % 2 != text[match.start() : match.end()].count('"') % 2:
            continue
        sentences.append(text[start : match.end()].strip())
        start = match.end()
    sentences.append(text[start:].strip())
    return sentences


def strip_period(segment: str) -> str:
    """Drop the closing period, but not the one that belongs to an abbreviation ("4 a.m.")."""
    segment = segment.strip()
    while segment.endswith(".") and not segment.endswith("...") and not _KEEPS_PERIOD.search(segment):
        segment = segment[:-1].rstrip()
    return segment


def close(line: str) -> str:
    """Capitalise a line and give it its closing period; a chain (ends with `)`) takes none."""
    line = line.strip()
    line = line[:1].upper() + line[1:]
    if line.endswith((".", "!", "?")) or is_chain_ending(line):
        return line
    return line + "."


_CHAIN_END = re.compile(r"\(current(?:, as of [^()]*)?\)$")


def is_chain_ending(segment: str) -> bool:
    """Whether a segment ends with the marker of a value chain."""
    return bool(_CHAIN_END.search(segment))


def words(text: str) -> list[str]:
    """Words of `text` as written, numbers with their inner signs ("4:12:33", "1,900", "40%") in one piece."""
    return _WORD.findall(text)


def stem(word: str) -> str:
    """A crude stem, good enough to see that two wordings share a word; number words become digits."""
    word = word.lower().replace("’", "'")
    word = word.removesuffix("'s").removesuffix("'")
    if word in NUMBER_WORDS:
        return NUMBER_WORDS[word]
    if any(char.isdigit() for char in word):
        return word.replace(",", "")
    for suffix, replacement in (("ies", "y"), ("ied", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""), ("e", "")):
        if word.endswith(suffix) and len(word) - len(suffix) >= 3 and not word.endswith("ss"):
            word = word[: -len(suffix)] + replacement
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
        word = word[:-1]
    return word


def content(text: str) -> list[str]:
    """Stems of the content words of `text`, in order, repeats kept."""
    return [stem(word) for word in words(text) if word.lower() not in STOP_WORDS]


def content_set(text: str) -> frozenset[str]:
    """Stems of the content words of `text`."""
    return frozenset(content(text))


def numbers(text: str) -> frozenset[str]:
    """Every number of `text`, digits or words, as digits."""
    found: set[str] = set()
    for word in words(text):
        measured = re.fullmatch(r"(\d[\d.,]*)-[a-z-]+", word)  # "12-pound" holds the number 12
        number = stem(measured[1]) if measured else stem(word)
        if any(char.isdigit() for char in number):
            found.add(number)
    return frozenset(found)


def names(text: str) -> frozenset[str]:
    """Capitalised words of `text` that do not merely open it, and quoted titles' words."""
    found = set()
    for index, word in enumerate(words(text)):
        if word[0].isupper() and word.lower() not in STOP_WORDS and index > 0:
            found.add(word.removesuffix("'s"))
    return frozenset(found)


def negated(text: str) -> bool:
    """Whether the number of negations in `text` is odd."""
    hits = sum(1 for word in words(text) if word.lower() in NEGATIONS or word.lower().endswith(("n't", "n’t")))
    return hits % 2 == 1


def overlap(left: frozenset[str], right: frozenset[str]) -> float:
    """Shared content words over those of the shorter text, 0 to 1."""
    return len(left & right) / min(len(left), len(right)) if left and right else 0.0


def normalised(text: str) -> str:
    """Form in which two texts count as the same: case, white space and the closing period ignored."""
    return strip_period(tidy(text)).casefold()
