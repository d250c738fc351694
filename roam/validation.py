"""Checks and normal forms of what callers hand in. Every refusal is an `InputError`."""

from __future__ import annotations

import hashlib
import re
import unicodedata
import uuid
from datetime import UTC, date, datetime, time

from roam.errors import InputError

MAX_TEXT = 2_000  # characters; an atomic fact is a sentence, and a longer text would be cut by the relation model
MAX_ID = 200
_SPACES = re.compile(r"\s+")


def clean_text(value: object, what: str = "text") -> str:
    """Return `value` NFC-normalised, its white space collapsed; refuse empty, over-long and control characters."""
    if not isinstance(value, str):
        raise InputError(f"{what} is {type(value).__name__} {value!r:.80}: give a str")
    text = _SPACES.sub(" ", unicodedata.normalize("NFC", value)).strip()
    if not text:
        raise InputError(f"{what} is empty: give at least one visible character")
    bad = next((char for char in text if unicodedata.category(char) in ("Cc", "Cs")), None)
    if bad is not None:
        raise InputError(f"{what} holds the control character U+{ord(bad):04X}: remove it")
    if not any(unicodedata.category(char)[0] in "LNSP" for char in text):
        raise InputError(f"{what} {text!r} has no visible character: give a readable text")
    if len(text) > MAX_TEXT:
        raise InputError(f"{what} has {len(text)} characters, at most {MAX_TEXT} are taken: split it into atomic facts")
    return text


def clean_user(value: object) -> str:
    """Return the user id unchanged: it is matched exactly, so it must be a clean, non-empty string as given."""
    return _clean_key(value, "user")


def clean_id(value: object | None) -> str:
    """Return a given observation id, or a fresh unique one for None."""
    return uuid.uuid4().hex if value is None else _clean_key(value, "id")


def clean_source(value: object | None) -> str | None:
    """Return the source as given, or None."""
    return None if value is None else _clean_key(value, "source")


def _clean_key(value: object, what: str) -> str:
    if not isinstance(value, str) or not value or value != value.strip():
        raise InputError(f"{what} is {value!r:.80}: give a non-empty str without surrounding white space")
    if len(value) > MAX_ID or any(unicodedata.category(char) in ("Cc", "Cs") for char in value):
        raise InputError(
            f"{what} {value!r:.80} is over {MAX_ID} characters or holds control characters: shorten or clean it"
        )
    return value


def parse_time(value: object | None, what: str = "observed_at") -> datetime | None:
    """Return an aware UTC date-time from an ISO 8601 string, date or datetime; None stays None.

    A date is its midnight, and a time without an offset is taken as UTC.
    """
    if value is None:
        return None
    if isinstance(value, datetime):
        parsed = value
    elif isinstance(value, date):
        parsed = datetime.combine(value, time())
    elif isinstance(value, str):
        try:
            parsed = datetime.fromisoformat(value.strip())
        except ValueError as error:
            raise InputError(
                f"{what} is {value!r:.80}: give an ISO 8601 date or time such as 2026-03-01 or 2026-03-01T09:30:00Z"
            ) from error
    else:
        raise InputError(f"{what} is {type(value).__name__}: give an ISO 8601 string, a date, a datetime or None")
    try:
        return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
    except OverflowError as error:
        raise InputError(f"{what} {value!r} is outside the years 1 to 9999 in UTC: correct it") from error


def time_text(moment: datetime | None) -> str | None:
    """Return the shortest ISO form: a midnight in UTC is a date (that is how plain dates are kept)."""
    if moment is None:
        return None
    return moment.date().isoformat() if moment.timetz() == time(tzinfo=UTC) else moment.isoformat()


def text_hash(text: str) -> str:
    """Key of a text in the judgement cache."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def duplicate_key(text: str) -> str:
    """Key under which two texts count as the same words: final full stops and spaces aside (DESIGN 4.6).

    Case is kept: 'US' and 'us' are different words, and the relation model handles the rest.
    """
    return text_hash(text.rstrip(" ."))


def check_count(value: object, what: str, least: int = 1) -> int:
    """Return a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{what} is {value!r}: give a whole number of at least {least}")
    return value
