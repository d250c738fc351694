"""Predicates that tell an attribute and its value, as patterns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Rule:
    """A predicate that matches `pattern` is about the attribute `name` and gives the value in group `v`.

    With `people`, the rule holds for the user and for persons ("User's son"), not for things ("User's car").
    """

    name: str
    pattern: re.Pattern[str]
    people: bool = True


def _rule(name: str, pattern: str, people: bool = True) -> Rule:
    return Rule(name, re.compile(rf"^(?:{pattern})$", re.IGNORECASE), people)


_TITLE = r"(?:Mr\.?|Mrs\.?|Ms\.?|Miss|Dr\.?|Prof\.?|Herr|Frau) "
RULES: Final[tuple[Rule, ...]] = (
    _rule("weight", r"weighs (?:in at )?(?P<v>.*\d.*)", people=False),
    _rule(
        "employer",
        r"(?:works|worked|is working|was working|has worked|has been working|has started|started"
        r"|is employed|was employed"
        r"|has a job|got a job|has taken a job) (?:at|for|by|with) (?P<v>(?!home\b|night\b|themselves\b).+)",
    ),
    _rule("employer", r"(?:has )?joined (?P<v>(?:[A-Z]|the [A-Z]).+)"),
    _rule(
        "job",
        r"(?:works|worked|is working|was working|has started|started|has worked) (?:as"
        r"|part-time as) (?P<v>.+)",
    ),
    _rule(
        "home city",
        r"(?:lives|lived|is living|was living|has lived|has been living|resides|is based|was based|has settled|settled)"
        r"(?: back)? in (?P<v>(?!an? |the (?:house|flat|apartment)).+)",
    ),
    _rule("home city", r"(?:has moved|moved|has relocated|relocated|is moving)(?: back)? to (?P<v>(?!an? ).+)"),
    _rule("home", r"(?:lives|lived|is living|has moved|moved|has lived) (?:in|on|into|to|onto) (?P<v>(?:an?|the) .+)"),
    _rule("home", r"rents (?P<v>an? .+)"),
    _rule("car", r"(?:drives|drove) (?P<v>(?:an? |the |\d{4} |[A-Z]).+)"),
    _rule("bank", r"(?:banks with|has an account with) (?P<v>.+)"),
    _rule("rent", r"pays (?P<v>\S*\d\S*(?: \w+)?(?: a month| per month)?) (?:in|for|of) rent(?P<w>.*)"),
    _rule("rent", r"pays (?P<v>\S*\d\S*(?: \w+)?) rent(?P<w>.*)"),
    _rule("salary", r"(?:earns|makes) (?P<v>\S*\d\S* .*(?:year|month|hour).*)"),
    _rule("age", r"(?:is|turned) (?P<v>[\w-]+) years old"),
    _rule("vote", r"votes for (?P<v>.+)"),
    _rule("school", r"(?:teaches|taught) at (?P<v>.+)"),
    _rule("major", r"(?:majors|is majoring|majored) in (?P<v>.+)"),
    _rule("manager", r"reports to (?P<v>.+)"),
    _rule("clothing size", r"wears (?:a )?size (?P<v>(?!.*\bshoes?\b).+)"),
    _rule("shoe size", r"wears (?:a )?size (?P<v>\S+) shoes?"),
    _rule("bedtime", r"goes to bed (?P<v>(?:at|around|before|after|by) .+)"),
    _rule("wake-up time", r"(?:gets|wakes) up (?P<v>(?:at|around|before|after|by) .+)"),
    _rule("commute", r"(?:commutes|goes to work|gets to work|travels to work) (?P<v>by .+|on .+)"),
    _rule("commute", r"takes (?P<v>.+) to work"),
    _rule("planned retirement age", r"(?:intends|plans|wants|hopes) to retire at (?P<v>.+)"),
    _rule("language at home", r"speaks (?P<v>.+) at home"),
    _rule(
        "relationship status",
        r"(?:is|has been|was) (?P<v>(?:single|married|engaged|divorced|separated"
        r"|widowed|dating)\b.*)",
    ),
    _rule("relationship status", r"(?:is|was) (?P<v>in an? (?:long-distance |open )?relationship\b.*)"),
    _rule("relationship status", r"(?:got|has got|gets) (?P<v>(?:married|engaged|divorced)\b.*)"),
    _rule(
        "diet",
        r"(?:is|has gone|went|became|has become) (?P<v>(?:an? )?(?:vegan|vegetarian"
        r"|pescatarian|omnivore|flexitarian|meat eater|meat-eater)\b.*)",
    ),
    _rule("diet", r"follows (?P<v>an? .*\bdiet\b.*|.*\bdiet\b.*)"),
    _rule("search engine", r"searches the web with (?P<v>.+)"),
    _rule("main browser", r"uses (?P<v>(?:Chrome|Firefox|Safari|Edge|Brave|Arc|Opera|Vivaldi|Chromium)\b.*)"),
    _rule(
        "phone",
        r"(?:has|uses|owns|bought) (?P<v>an? (?:iPhone|Pixel|Galaxy|Nokia|OnePlus|Fairphone"
        r"|Xiaomi|Moto|BlackBerry)\b.*)",
    ),
    _rule("laptop", r"(?:has|uses|owns|bought) (?P<v>an? (?:MacBook|ThinkPad|Surface|Chromebook|Framework)\b.*)"),
    _rule("doctor", rf"(?:sees|is a patient of) (?P<v>{_TITLE}.+)"),
    _rule("email address", r"can be reached at (?P<v>\S+@\S+)"),
    _rule("name", r"(?:is|was) (?:called|named) (?P<v>.+)", people=False),
    _rule("name", r"goes by (?P<v>.+)"),
)
