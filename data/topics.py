"""Which domains can't be related: the condition for calling two facts of different families independent.

The families' rule is that facts of different domains are IND. Their domain names were given freely, so that `food`,
`diet` and `eating_out` are three names of one topic. Two families may be paired as independent only when the topics of
both are known and share nothing.
"""

from __future__ import annotations

from functools import lru_cache

TOPIC_WORDS: dict[str, tuple[str, ...]] = {
    "food": ("food", "drink", "diet", "cook", "eating", "meal", "coffee", "caffeine", "hydration", "sweets", "allerg"),
    "health": ("health", "diet", "medic", "fitness", "body", "therapy", "allerg", "smok", "dental", "skin", "pregnan",
               "sleep", "hydration", "weight", "eyewear"),
    "sport": ("sport", "fitness", "exercise", "races", "swim", "football", "mountaineer", "sailing", "dance"),
    "work": ("work", "employ", "career", "occupation", "business", "pay", "colleague", "retire", "deadline", "job"),
    "learning": ("educat", "school", "learn", "language", "skill", "lesson", "exam", "mentor", "reading"),
    "people": ("famil", "relati", "parent", "child", "friend", "marriage", "neighbor", "roommate", "social",
               "colleague", "community", "household", "club"),
    "home": ("home", "hous", "residence", "living", "location", "place", "property", "relocat", "move", "garden",
             "household", "roommate", "origin", "chores", "inherit"),
    "money": ("financ", "money", "saving", "pay", "account", "insur", "purchase", "shopping", "lending", "inherit",
              "subscription", "property", "utility"),
    "things": ("possess", "purchase", "shopping", "device", "car", "phone", "collect", "fashion", "clothing", "gift",
               "eyewear", "brand", "body_art"),
    "tech": ("tech", "digital", "device", "software", "phone", "app", "messag", "screen", "work_tools", "privacy",
             "account", "assistant"),
    "media": ("music", "film", "movie", "book", "literature", "reading", "television", "media", "concert", "art",
              "culture", "screen", "game"),
    "hobby": ("hobb", "game", "collect", "garden", "craft", "leisure", "interest", "dance", "fan", "reading",
              "outdoor"),
    "travel": ("travel", "commut", "transport", "driving", "car", "relocat", "booking", "sailing", "weather"),
    "pets": ("pet",),
    "nature": ("nature", "environment", "garden", "outdoor", "weather", "season"),
    "belief": ("belief", "value", "religio", "politic", "tradition", "attitude"),
}  # fmt: skip

# Names that can hold a fact of any topic; a family of such a domain is never paired across families.
OPEN_WORDS = ("prefer", "habit", "routine", "event", "plan", "attribute", "favorite", "lifestyle", "regret", "schedule",
              "trait", "fear", "dates", "update", "document", "biograph", "life", "appointment", "attitude", "measure",
              "values", "assistant", "goal", "history", "arrangement")  # fmt: skip


@lru_cache(maxsize=4096)
def topics(domain: str) -> frozenset[str]:
    """Topics that a domain name touches; empty when it can hold anything."""
    if any(word in domain for word in OPEN_WORDS):
        return frozenset()
    return frozenset(topic for topic, words in TOPIC_WORDS.items() if any(word in domain for word in words))


def unrelated(domain_a: str, domain_b: str) -> bool:
    """True when no fact of `domain_a` can bear on one of `domain_b`."""
    first, second = topics(domain_a), topics(domain_b)
    return bool(first and second) and not first & second
