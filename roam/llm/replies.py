"""From a model's words to a value: strict, since a guess at what it meant would be a silent fallback."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

_THOUGHTS: Final = re.compile(r"^\s*<think>.*?</think>", re.DOTALL)
_FENCE: Final = re.compile(r"^```(?:json)?\s*\n(?P<body>.*?)\n?```$", re.DOTALL)
SHOWN: Final = 80  # characters of an unusable answer that its reason quotes


class UnusableReplyError(ValueError):
    """An answer that is not what was asked for; the message goes back to the model with the next try."""


def json_object(text: str) -> Mapping[str, Any]:
    """The one JSON object that a reply consists of, thoughts and a code fence around it aside.

    Raises `UnusableReplyError` for anything else: prose, a list, two objects, a key that is there twice.
    """
    body = _THOUGHTS.sub("", text).strip()
    fenced = _FENCE.match(body)
    if fenced:
        body = fenced["body"].strip()
    try:
        value = json.loads(body, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise UnusableReplyError(f"it is not one JSON object ({error})") from error
    if not isinstance(value, dict):
        raise UnusableReplyError(f"it is a JSON {type(value).__name__}, not an object")
    return value


def plain_line(text: str) -> str:
    """A reply that is one text, on one line, thoughts and quotes around it aside; `UnusableReplyError` if empty."""
    line = " ".join(_THOUGHTS.sub("", text).split())
    if len(line) > 1 and line[0] == line[-1] == '"' and '"' not in line[1:-1]:
        line = line[1:-1].strip()
    if not line:
        raise UnusableReplyError("it is empty")
    return line


def only_keys(value: Mapping[str, Any], *names: str) -> None:
    """Raise `UnusableReplyError` unless the object has exactly these keys."""
    if set(value) != set(names):
        raise UnusableReplyError(f"its keys are {sorted(value)}, and must be {sorted(names)}"[: 4 * SHOWN])


def _unique(items: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(items)
    if len(values) < len(items):
        raise ValueError("a key is there twice")
    return values
