"""Which phenomena a pair of facts turns on: rules over the words of both texts.

A tag says that the two texts *differ* in something (one is negated, their numbers differ, one names a relative), not
that it merely occurs. Rules are plain enough to be checked by eye and miss or overreach at times: the tags are there to
group errors, not to label pairs. A pair has as many tags as rules that hold; `NONE` if there are none.
Is-a relations between words are not covered: that needs WordNet, whose data no light package brings along.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from eval.zero_shot import NEGATION

NONE = "none"
LOW_OVERLAP = 0.2  # Jaccard index of the content words
MUCH_LONGER = 2.0  # ratio of word counts
LONG = 25  # words


@functools.cache
def phrases(text: str, flags: int = re.IGNORECASE) -> re.Pattern[str]:
    """A pattern for any of the alternatives in `text`, as whole words; space around each `|` is for reading only."""
    return re.compile(rf"\b(?:{'|'.join(part.strip() for part in text.split('|'))})\b", flags)


TO_TWENTY = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen twenty"""
TENS = {"thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90, "hundred": 100,
        "thousand": 1000, "million": 1_000_000, "dozen": 12, "once": 1, "twice": 2}  # fmt: skip
NUMBER_WORDS = {word: str(value) for value, word in enumerate(TO_TWENTY.split())} | {
    word: str(value) for word, value in TENS.items()
}
SPELLED = "|".join(NUMBER_WORDS)
NUMBER = re.compile(rf"\b(?:\d+(?:[.,]\d+)*|{SPELLED})\b(?!\s+of\b)", re.IGNORECASE)
BOUND = phrases(rf"""at least | at most | (?:no |not )?(?:more|less|fewer) than | no more | or more | or less | up to
    | between | (?:over|under|above|below|around|about|almost|nearly|roughly|exactly|just) (?:\d\S*|{SPELLED})""")
MONTH = "January|February|March|April|May|June|July|August|September|October|November|December"
DAY = "(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)days?"
# Months and days are told from other words (may, march) by their capital.
DATE = phrases(rf"""{MONTH} | {DAY} | (?:19|20)\d\d | \d{{1,2}}:\d\d | \d{{1,2}}(?:st|nd|rd|th)
    | \d{{1,2}}(?::\d\d)?\s?(?:am|pm|a\.m|p\.m) | noon | midnight | mornings? | afternoons? | evenings? | nights?
    | weekends? | weekdays? | springs? | summers? | autumns? | winters?""", 0)  # fmt: skip
UNIT_NAMES = """km kilomet(?:re|er)s? met(?:re|er)s? m cm miles? feet inch(?:es)? kg kilos? grams? g pounds? lbs?
lit(?:re|er)s? ml percent % seconds? minutes? hours? days? weeks? months? years? euros? dollars? degrees? square"""
UNIT = re.compile(
    rf"(?:\d|\b(?:{SPELLED}))[\s-]*(?P<unit>{'|'.join(UNIT_NAMES.split())})(?![a-z])|(?P<sign>[€$£])\s?\d",
    re.IGNORECASE,
)
QUANTIFIER = phrases("""all | every | each | everything | everyone | most | many | much | some | several | few | any
    | anything | anyone | either | neither | none | no(?! (?:more|less|fewer|longer)) | nothing | nobody | both | half
    | at least one | one of | majority | whole | entire""")
FREQUENCY = phrases(r"""always | usually | often | frequently | sometimes | occasionally | rarely | seldom
    | never | regularly | daily | weekly | monthly | yearly | annually | once | twice | (?:\w+ )?times
    | every (?:other |single )?\w+ | each (?:day|week|month|year|morning|evening)
    | (?:a|per) (?:day|week|month|year) | on \w+days | whenever""")
COMPARING = r"""than | prefers? | preferred | rather | instead of | better | worse | older | younger | elder
    | favou?rite | compared | likes? \w+ (?:most|best)"""
COMPARISON = phrases(COMPARING)
ORDER = phrases(rf"{COMPARING} | before | after | more | less | fewer | over")
PIVOT = phrases("than | over | to | before | after | instead of | not")
OPPOSITES = (
    ("more", "less"), ("more", "fewer"), ("better", "worse"), ("older", "younger"), ("before", "after"),
    ("earlier", "later"), ("longer", "shorter"), ("bigger", "smaller"), ("larger", "smaller"), ("higher", "lower"),
    ("most", "least"), ("faster", "slower"), ("over", "under"), ("above", "below"), ("at least", "at most"),
)  # fmt: skip
PLACE_WORD = phrases("""city | town | village | countr(?:y|ies) | county | province | state | island | coast | capital
    | continent | abroad | overseas | downtown | suburbs? | countryside | region | district | neighbou?rhood
    | north(?:ern)? | south(?:ern)? | east(?:ern)? | west(?:ern)?""")
PLACE_NAME = re.compile(r"\b(?:in|to|from|near|across|around|outside) (?:the )?([A-Z][\w'-]+(?: [A-Z][\w'-]+)*)")
NOT_PLACE = re.compile(rf"(?:{MONTH}|{DAY}|I|I'm|I've)\b")
OTHER_PERSON = phrases(r"""(?:grand|step|god)?(?:mother|father|parents?|mom|mum|dad|sons?|daughters?|child(?:ren)?)
    | kids? | bab(?:y|ies) | sisters? | brothers? | siblings? | wife | husband | spouse | partner | girlfriend
    | boyfriend | fianc[ée]e? | twins? | aunts? | uncles? | cousins? | nieces? | nephews? | \w+-in-law
    | friends? | colleagues?
    | co-?workers? | boss | manager | neighbou?rs? | room-?mates? | flat-?mates? | teachers? | doctor | dentist
    | grandma | grandpa | family | relatives?""")
PLAN = phrases(r"""plans? | planned | planning | intends? | hopes? | hoping | wants? | wanted | would like | considering
    | considers | thinking (?:of|about) | going to \w+ | will | might | (?-i:may) | dreams? of | aims? | aiming
    | looking forward | aspires? | about to | booked | scheduled""")
LIKING = phrases(r"""(?<!would )likes? | liked | loves? | loved | enjoys? | enjoyed | hates? | hated | dislikes?
    | disliked | prefers? | fans? of | favou?rites? | fond | keen | interest(?:ed|s)? | can't stand | appeals?
    | appealing | passion(?:ate)? | adores? | liking | taste for""")
TIME_SCOPE = phrases(r"""used to | no longer | any ?more | formerly | previously | once was | ago | since | until | till
    | now | nowadays | these days | recently | lately | currently | still | already | yet | stopped | started | began
    | quit | gave up | given up | switched | changed | became | moved | left | retired | former | ex-\w+ | grew up
    | as a (?:child|kid|teenager) | last (?:year|month|week|summer|winter) | at the moment
    | for the first time | back (?:to|from) | in the past | (?:has|have) (?:been|never)""")
ONLY = phrases("""only | just | exclusively | solely | sole | nothing but | nothing else | exactly | favou?rite | alone
    | entirely | fully | completely""")
DEGREE = phrases("""very | really | extremely | slightly | somewhat | a (?:bit|little) | quite | fairly | highly | badly
    | strongly | loves? | adores? | hates? | can't stand | fluent(?:ly)? | expert | professional(?:ly)? | obsessed
    | passionate(?:ly)? | mild(?:ly)? | severe(?:ly)?""")
CONDITION = phrases("if | whenever | unless | except | because | so that | in case | as long as | due to | only when")
LIST = phrases("and | or | as well as | besides | along with | both | neither | nor")
PASSIVE = phrases(r"""(?:is|are|was|were|been|being|be|am|gets?|got) (?:\w+ly )?\w+(?:ed|en|wn|ght|de|ld|ung|ut)""")
BY = phrases("by")
CONVERSES = (
    ("buy|buys|bought", "sell|sells|sold"), ("lend|lends|lent", "borrow|borrows|borrowed"),
    ("teach|teaches|taught|teaching", "learn|learns|learned|student|pupil"),
    ("give|gives|gave", "receive|receives|received|got"), ("owns?|owned", "belongs?|belonged"),
    ("employs?|employer", "works? for|employee"), ("parents?|mother|father", "son|daughter|child|children"),
    ("manages?|manager|boss", "reports? to"), ("husband", "wife"), ("aunt|uncle", "niece|nephew"),
    ("married", "divorced"),
)  # fmt: skip
FIRST_PERSON = phrases("I | I'm | I've | I'd | I'll | [Mm]y | [Mm]e | [Mm]ine | [Mm]yself | [Ww]e | [Oo]ur", 0)
TOKEN = re.compile(r"[A-Za-z]+(?:['’-][A-Za-z]+)*|\d+(?:[.,:/]\d+)*")
SUFFIX = re.compile(r"(?:'s|’s)$|(?<=\w{3})(?:ings?|edly|ed|ies|es|s|ly|er)$")


@dataclass(frozen=True)
class Text:
    """A text with its words (lower case), content stems and names (capitalised words inside a sentence)."""

    raw: str
    words: tuple[str, ...]
    content: frozenset[str]
    names: frozenset[str]

    @classmethod
    def of(cls, raw: str) -> Text:
        found = list(TOKEN.finditer(raw))
        words = tuple(match[0].lower() for match in found)
        names = frozenset(
            re.sub(r"['’]s$", "", match[0])
            for at, match in enumerate(found)
            if at and match[0][0].isupper() and not match[0].startswith(("I'", "I’"))
            and match[0] not in {"I", "User", "The"} and not DATE.fullmatch(match[0])
            and raw[: match.start()].rstrip()[-1:] not in {".", ":", "!", "?"}
        )  # fmt: skip
        return cls(raw, words, stems(words), names)

    def values(self, pattern: re.Pattern[str]) -> frozenset[str]:
        """The distinct matches of a pattern, lower case, singular by a plain s."""
        return frozenset(match[0].lower().rstrip("s") for match in pattern.finditer(self.raw))

    def numbers(self) -> frozenset[str]:
        """Numbers in digits, those of dates and clock times left out."""
        found = NUMBER.findall(DATE.sub(" ", self.raw))
        return frozenset(NUMBER_WORDS.get(number.lower(), number.replace(",", "")) for number in found)

    def units(self) -> frozenset[str]:
        return frozenset((match["unit"] or match["sign"]).lower().rstrip("s") for match in UNIT.finditer(self.raw))

    def places(self) -> frozenset[str]:
        names = {name.lower() for name in PLACE_NAME.findall(self.raw) if not NOT_PLACE.match(name)}
        return frozenset(names) | self.values(PLACE_WORD)

    def without(self, values: frozenset[str]) -> frozenset[str]:
        """Those of `values` that this text does not hold anywhere."""
        lower = self.raw.lower()
        return frozenset(value for value in values if value.lower() not in lower)


def stems(words: tuple[str, ...]) -> frozenset[str]:
    """Content words without common endings: not linguistics, only so that `hikes` and `hiking` count as shared."""
    kept = (word for word in words if word not in ENGLISH_STOP_WORDS and word not in {"user", "users", "user's"})
    return frozenset(SUFFIX.sub("", word) for word in kept)


def one_sided(pattern: re.Pattern[str]) -> Callable[[Text, Text], bool]:
    """A rule that holds when the pattern is in exactly one text."""
    return lambda a, b: bool(pattern.search(a.raw)) != bool(pattern.search(b.raw))


def differing(pattern: re.Pattern[str]) -> Callable[[Text, Text], bool]:
    """A rule that holds when the texts' matches of the pattern differ."""
    return lambda a, b: a.values(pattern) != b.values(pattern)


def overlap(a: Text, b: Text) -> float:
    """Jaccard index of the content stems, 1 when neither has any."""
    union = a.content | b.content
    return len(a.content & b.content) / len(union) if union else 1.0


def comparison_reversed(a: Text, b: Text) -> bool:
    """Both compare, and what stands before the comparing word in one stands after it in the other; or more/less."""
    if not (ORDER.search(a.raw) and ORDER.search(b.raw)):
        return False
    for first, second in (*OPPOSITES, *((right, left) for left, right in OPPOSITES)):
        if _only(first, second, a) and _only(second, first, b):
            return True
    if all(BOUND.search(text.raw) for text in (a, b)):  # "than five" compares with a number, not with a thing
        return False
    sides = [_sides(text) for text in (a, b)]
    if not (sides[0] and sides[1]):
        return False
    (left, right), (left_b, right_b) = sides[0], sides[1]
    straight = len((left & left_b) - right) + len((right & right_b) - left)
    crossed = len((left & right_b) - right) + len((right & left_b) - left)
    return crossed > straight


def _only(wanted: str, absent: str, text: Text) -> bool:
    return bool(phrases(wanted).search(text.raw)) and not phrases(absent).search(text.raw)


def _sides(text: Text) -> tuple[frozenset[str], frozenset[str]] | None:
    """Content stems before and after the last comparing word."""
    found = list(PIVOT.finditer(text.raw))
    if not found:
        return None
    parts = (text.raw[: found[-1].start()], text.raw[found[-1].end() :])
    left, right = (stems(tuple(match[0].lower() for match in TOKEN.finditer(part))) for part in parts)
    return left, right


def one_word_swapped(a: Text, b: Text) -> bool:
    """The same words in the same order but for one."""
    return len(a.words) == len(b.words) and sum(x != y for x, y in zip(a.words, b.words, strict=True)) == 1


def unmatched_names(a: Text, b: Text) -> int:
    """In how many of the two texts (0, 1, 2) a name stands that the other lacks."""
    return bool(b.without(a.names)) + bool(a.without(b.names))


def converse(a: Text, b: Text) -> bool:
    """Passive in one text only, or the two sides of a relation (buy and sell, own and belong)."""
    passive = [bool(PASSIVE.search(text.raw) and BY.search(text.raw)) for text in (a, b)]
    if passive[0] != passive[1]:
        return True
    return any(
        (_only(x, y, first) and _only(y, x, second))
        for x, y in CONVERSES
        for first, second in ((a, b), (b, a))
    )  # fmt: skip


def much_longer(a: Text, b: Text) -> bool:
    short, long = sorted((len(a.words), len(b.words)))
    return long >= MUCH_LONGER * short


PHENOMENA: Mapping[str, tuple[str, Callable[[Text, Text], bool]]] = {
    "number": ("another number or quantity", lambda a, b: a.numbers() != b.numbers()),
    "bound": ("bounds (at least, more than, about)", differing(BOUND)),
    "date": ("another date, day or clock time", differing(DATE)),
    "unit": ("different units", lambda a, b: bool(a.units() and b.units()) and a.units() != b.units()),
    "negation": ("one is negated", one_sided(NEGATION)),
    "both_negated": ("both are negated", lambda a, b: all(NEGATION.search(text.raw) for text in (a, b))),
    "quantifier": ("quantifiers (all, some, no)", differing(QUANTIFIER)),
    "frequency": ("how often", differing(FREQUENCY)),
    "comparison": ("one compares", one_sided(COMPARISON)),
    "comparison_reversed": ("a comparison turned around", comparison_reversed),
    "place": ("another place", lambda a, b: bool(b.without(a.places()) or a.without(b.places()))),
    "other_person": ("another person (kin, friend, colleague)", differing(OTHER_PERSON)),
    "other_name": ("another name", lambda a, b: unmatched_names(a, b) == 2),
    "added_name": ("a name in one only", lambda a, b: unmatched_names(a, b) == 1),
    "plan": ("plan against fact", one_sided(PLAN)),
    "liking": ("liking against doing", one_sided(LIKING)),
    "time_scope": ("time scope or change over time", differing(TIME_SCOPE)),
    "only": ("only, exactly, favourite", differing(ONLY)),
    "degree": ("degree (very, a bit, loves)", differing(DEGREE)),
    "condition": ("condition or reason in one", one_sided(CONDITION)),
    "list": ("several values in one", one_sided(LIST)),
    "low_overlap": ("few words in common", lambda a, b: overlap(a, b) < LOW_OVERLAP),
    "same_words": ("the same content words", lambda a, b: a.content == b.content),
    "one_word": ("one word swapped", one_word_swapped),
    "contained": ("one has all words of the other", lambda a, b: a.content < b.content or b.content < a.content),
    "converse": ("passive or converse", converse),
    "person_mix": ("first against third person", one_sided(FIRST_PERSON)),
    "first_person": ("both in the first person", lambda a, b: all(FIRST_PERSON.search(text.raw) for text in (a, b))),
    "much_longer": ("one at least twice as long", much_longer),
    "long": ("a long text", lambda a, b: max(len(a.words), len(b.words)) >= LONG),
}
"""Name -> (what it is, rule). Every rule is symmetric in the two texts."""


def tags(old: str, new: str) -> frozenset[str]:
    """Names of the phenomena that tell the two texts apart; {`NONE`} when no rule holds.

    >>> sorted(tags("User has two cats.", "User has three cats."))
    ['number', 'one_word', 'same_words']
    """
    a, b = Text.of(old), Text.of(new)
    return frozenset(name for name, (_, rule) in PHENOMENA.items() if rule(a, b)) or frozenset({NONE})
