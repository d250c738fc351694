"""Details of one statement that another lacks, as modifiers that can be inserted (data/FUSION.md)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from roam.fusion.lexicon import FINITE_VERBS, GENERIC_NOUNS, STOP_WORDS, TIME_WORDS
from roam.fusion.text import content, content_set, names, negated, numbers, stem, words

_AFTER_VERB: Final = "the|an?|his|her|their|them|it|to|up|out|off|for|every|by|as|no|at|in|on|under|behind|over|hard"
_CLAUSE: Final = re.compile(
    r"(?P<joint>, |: | and (?=(?!(?:always|others|his|its|this|hers|theirs) )"
    r"(?:(?:has|had|is|was|would|could|can|will|cannot|works|lives|hates|loves|likes|[a-z]+ed) "
    rf"|[a-z]+s (?:{_AFTER_VERB})\b)))"
)
_LINKS: Final = (
    "because of|because|in which|without|with|named|called|who|which|that|using|since|as|for|from|on|in|at|by|during"
    "|until|after|before|every|to|of|about|over"
)
_PARTICIPLES: Final = "built|made|bought|strung|kept|held|worn|born|grown|[a-z]+ed"
_PHRASE: Final = re.compile(
    rf"(?<! in)(?<! of)(?<! for) (?=(?:{_LINKS}) )|(?<! is)(?<! are)(?<! was)(?<! were)"
    r"(?<! has)(?<! had)(?<! been)(?<! [Uu]ser)(?<! get)(?<! got)"
    rf" (?=(?:{_PARTICIPLES}) (?:in|at|by|from|with|on)\b)"
)
_TO_THE_END: Final = re.compile(rf"^(?:because|in which|who|which|that|since|using|{_PARTICIPLES})\b")
_ATTACHED: Final = re.compile(r"^(?:of|for|to|by|from|about)\b")
_SUBJECT_INSIDE: Final = re.compile(r"\b(?:[Tt]he user|User)\b")
_RANGE: Final = re.compile(
    r"\b(?:above|below|between|over|under|more than|less than|at least|at most|about|roughly|around"
    r"|almost|nearly|before|after|for over)(?: \w+)? \d|\b(?:\w+er|more|less) than\b|\b(?:some|several"
    r"|various|somewhere|some kind|some sort)\b"
)
_SURE: Final = re.compile(
    rf"^(?:because|in which|without|with|named|called|who|which|that|using|as an?|{_PARTICIPLES})\b"
)
_PLACE: Final = re.compile(
    r"^(?:(?:in|on) (?:an?|the|their|his|her)|on (?:paper|foot|sale|credit|loan)|by (?:hand|post|phone"
    r"|card|car|bike|bus|train|tram|boat|plane|scooter|ferry))\b"
)
_NOT_DETAILS: Final = re.compile(
    r"^(?:as a (?:child|kid|rule|teenager|hobby|whole|result)\b|with (?:children|people|others|kids|animals|it|them)$"
    r"|in (?:his|her|their) (?:life|career)\b|not\b|on an? (?:regular|daily|weekly|monthly|yearly) basis)"
)
_RELATIVE: Final = re.compile(r"^(?:that|who|which|in which)\b")
_NOUN_PHRASE: Final = re.compile(r"\b(?:an?|the|his|her|their|its|no|all|every)\b|\d")
_EQV_LINKS: Final = re.compile(r"^(?:with|without|on an?|because|named|called|using|during|since|from|who|which)\b")


_SAME_START: Final = 5
"""Words that share so many first letters are taken for forms of one word."""


class Piece(NamedTuple):
    """A modifier and how its own sentence joins it: `", "`, `": "`, `" and "` or `" "`."""

    joint: str
    text: str


def pieces(text: str) -> list[Piece]:
    """Cut a statement into its main part and its modifiers, in order; double-quoted titles are never cut."""
    clauses = _cut(text, _CLAUSE)
    main = clauses[0].text
    phrases = [Piece(" ", part.text) for part in _cut(main, _PHRASE)]
    joined: list[Piece] = []
    for phrase in phrases:
        runs_on = joined and len(joined) > 1 and (_TO_THE_END.match(joined[-1].text) or _ATTACHED.match(phrase.text))
        if runs_on:
            joined[-1] = Piece(" ", f"{joined[-1].text} {phrase.text}")
        else:
            joined.append(phrase)
    return [*joined, *_with_lists(clauses[1:])]


def _cut(text: str, pattern: re.Pattern[str]) -> list[Piece]:
    found: list[Piece] = []
    start, joint = 0, ""
    for match in pattern.finditer(text):
        if text[: match.start()].count('"') % 2:
            continue
        found.append(Piece(joint, text[start : match.start()]))
        start, joint = match.end(), match.groupdict().get("joint") or " "
    found.append(Piece(joint, text[start:]))
    return found


def _with_lists(clauses: list[Piece]) -> list[Piece]:
    # ": Dot, Pip, Mabel and June" is one piece: a capitalised item after a comma goes on with what precedes it.
    joined: list[Piece] = []
    for clause in clauses:
        listed = clause.joint == ", " and re.match(r'^[A-Z0-9"]', clause.text)
        if joined and listed:
            joined[-1] = Piece(joined[-1].joint, f"{joined[-1].text}, {clause.text}")
        else:
            joined.append(clause)
    return joined


def details(text: str, base: str, careful: bool) -> list[Piece]:
    """Modifiers of `text` that `base` lacks, in order.

    With `careful` (the base entails the text: OSN, NSO) places, times and ranges that the base may imply are left out;
    without it (EQV) pieces with numbers or names of their own count, and pieces that are new as a whole.
    """
    known = word_stems(base)
    cut = pieces(text)
    main = cut[0].text
    has_object = len(words(main)) - _subject_length(main) >= 2
    found: list[Piece] = []
    for position, cut_out in enumerate(cut[1:], 1):
        piece = _from_first_news(_without_copula(_about_subject(cut_out, cut[position - 1])), known)
        fresh = _unknown(piece.text, known)
        if not fresh or _SUBJECT_INSIDE.search(piece.text) or _fills_a_slot(cut[position - 1], piece, base):
            continue
        if piece.joint == ", " and piece.text.split(" ", 1)[0] in FINITE_VERBS:
            continue  # the predicate goes on behind an insertion: no modifier
        if _RELATIVE.match(piece.text) and not _NOUN_PHRASE.search(base):
            continue
        around = word_stems(_without_subject(text)) - word_stems(piece.text)
        support = len(around) - len(_unknown_of(around, known))
        share = support / len(around) if around else float(careful)
        if careful:
            complement = position == 1 and piece.joint == " " and not has_object
            if _is_detail(piece, main, complement) and _is_supported(piece, support, share, known):
                found.append(piece)
        elif share >= 0.5 and _is_new(piece, fresh, known) and (share > 0.5 or piece.joint != " "):
            found.append(piece)
    return found


def _without_subject(text: str) -> str:
    return " ".join(text.split(" ")[_subject_length(text) :])


def _unknown(text: str, known: set[str]) -> set[str]:
    """Content words of `text` that are not known; forms of a known word ("diabetic", "diabetes") are known."""
    exact = {stem(name) for name in names(f"x {text}")} | numbers(text)
    fresh = word_stems(text) - known
    return (fresh & exact) | _unknown_of(fresh - exact, known)


def _unknown_of(tokens: set[str], known: set[str]) -> set[str]:
    starts = {word[:_SAME_START] for word in known if len(word) >= _SAME_START}
    return {word for word in tokens if word not in known and word[:_SAME_START] not in starts}


def _is_supported(piece: Piece, support: int, share: float, known: set[str]) -> bool:
    """Whether the rest of the sentence speaks of what the base speaks of, so that the piece says more about that."""
    named = {stem(name) for name in names(f"x {piece.text}")}
    if named and named <= known:
        return False
    if any(word.lower() in GENERIC_NOUNS for word in words(piece.text)):
        return False  # "in a science subject", "built by a company": the specific statement implies it
    if piece.joint == " " and (_PLACE.match(piece.text) or piece.text.startswith("as ")):
        return share >= 0.5 and support > 0
    return True


def _about_subject(piece: Piece, before: Piece) -> Piece:
    """ "..., who blames the noise" behind the subject itself goes on with "and blames the noise"."""
    match = re.match(r"^who (?P<rest>[a-z]+s .+)$", piece.text)
    if match and piece.joint == ", " and re.search(r"(?:to|by) (?:[A-Z]\w+|the user|User)$", before.text):
        return Piece(" and ", match["rest"])
    return piece


def _from_first_news(piece: Piece, known: set[str]) -> Piece:
    """A bound modifier without the leading phrases that the base has: "in biology from Bergen", "from Bergen"."""
    if piece.joint != " " or _TO_THE_END.match(piece.text):
        return piece
    parts = _cut(piece.text, _PHRASE)
    while len(parts) > 1 and not word_stems(parts[0].text) - known:
        parts.pop(0)
    return Piece(" ", " ".join(part.text for part in parts))


def word_stems(text: str) -> set[str]:
    """Content words, compounds also in parts ("two-room": two, room)."""
    found = set(content(text))
    for word in words(text):
        if "-" in word:
            found.update(stem(part) for part in word.split("-") if part)
            found.discard(stem(word))
    return found


def _subject_length(main: str) -> int:
    if main.startswith("The user"):
        return 2
    return 1 if main.startswith("User") or re.match(r"^[A-Z]\w+ [a-z]+s\b", main) else 0


def _fills_a_slot(before: Piece, piece: Piece, base: str) -> bool:
    """Whether the base fills the same place with something else: "made with a generator", "made with Hugo"."""
    if piece.joint != " " or not words(before.text):
        return False
    link = piece.text.split(" ", 1)[0]
    if before.text.endswith((" do", " one", " something")) and link in ("with", "that"):
        return True
    return f"{words(before.text)[-1]} {link} " in base


def _is_detail(piece: Piece, main: str, complement: bool) -> bool:
    if _NOT_DETAILS.match(piece.text):
        return False
    if _RANGE.search(_digits(piece.text)) and not _TO_THE_END.match(piece.text):
        return False
    if piece.joint != " ":
        return True
    if complement and not re.match(r"^(?:with|without|because)\b", piece.text):
        return False
    if negated(main) and not piece.text.startswith(("because", "without")):
        return False
    if _SURE.match(piece.text):
        return True
    timed = any(word.lower() in TIME_WORDS for word in words(piece.text)) or numbers(piece.text)
    return bool(_PLACE.match(piece.text)) and not timed and not names(f"x {piece.text}")


def _digits(text: str) -> str:
    return " ".join(stem(word) if stem(word)[0].isdigit() else word for word in text.split())


def _is_new(piece: Piece, fresh: set[str], known: set[str]) -> bool:
    hard = numbers(piece.text) | {stem(name) for name in names(f"x {piece.text}")}
    tokens = word_stems(piece.text)
    if _RANGE.search(_digits(piece.text)):
        return False
    if hard & fresh:
        # A number or name beside words that the base has is the same thing told otherwise.
        return piece.joint != " " or not (tokens - hard) & known
    if hard or re.match(r"^(?:and )?(?:he|she|they|it|who|which)\b", piece.text):
        return False
    new = len(fresh) / len(tokens)
    return new >= 0.5 if piece.joint != " " else new == 1 and bool(_EQV_LINKS.match(piece.text))


def _without_copula(piece: Piece) -> Piece:
    match = re.match(r"^(?:that|which|who) (?:is|are) (?P<rest>.+)$", piece.text)
    return Piece(", ", match["rest"]) if match else piece


def insert(base: str, piece: Piece) -> str:
    """`base` with one more modifier, joined as it was joined in its own sentence."""
    if piece.joint == " and ":
        return f"{base}{', and ' if ', ' in base else ' and '}{piece.text}"
    if piece.joint == " ":
        # Bound modifiers stand before the loose ones, which a comma or colon sets off.
        loose = re.search(r", (?=[a-z0-9])|: ", base)
        if loose and '"' not in base and not re.match(r"^(?:that|who|which|because|in which)\b", piece.text):
            return f"{base[: loose.start()]} {piece.text}{base[loose.start() :]}"
        return f"{base} {piece.text}"
    colon = base.find(": ")
    if piece.joint == ", " and colon > 0:
        return f"{base[:colon]}, {piece.text}{base[colon:]}"
    return f"{base}{piece.joint}{piece.text}"


def fold(base: str, others: list[str], careful: bool) -> str:
    """`base` with the details of the other statements inserted."""
    for other in others:
        for piece in details(other, base, careful):
            base = insert(base, piece)
    return base


def fold_whole(base: str, other: str) -> str | None:
    """`base` with the details of an equivalent statement, or None when a number or name of it would still lack."""
    merged = fold(base, [other], careful=False)
    return merged if covers(merged, other) else None


def covers(base: str, other: str) -> bool:
    """Whether `base` holds every number and name of `other`."""
    hard = numbers(other) | {stem(name) for name in names(other) if name.lower() not in STOP_WORDS}
    return hard <= content_set(base) | word_stems(base)


def only_loose(base: str, other: str) -> bool:
    """Whether all details that `other` adds stand loose behind a comma or colon and are new as a whole."""
    found = details(other, base, careful=False)
    known = word_stems(base)
    return bool(found) and all(piece.joint != " " and not word_stems(piece.text) & known for piece in found)


def missing(base: str, other: str) -> int:
    """How many content words of `other` the base lacks."""
    return len(_unknown(other, word_stems(base)))
