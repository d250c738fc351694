"""Where an endpoint is, which model it serves, and how patient its client is."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from roam.errors import InputError

ENVIRONMENT: Final = "ROAM_LLM"
"""Start of the environment variables: ROAM_LLM_URL, ROAM_LLM_MODEL, ROAM_LLM_KEY, ROAM_LLM_EXTRA."""


class OutputMode(StrEnum):
    """How a server is told to answer in JSON, the strictest first; servers know different ones."""

    JSON_SCHEMA = "json_schema"  # OpenAI's structured outputs: vLLM, Ollama, llama.cpp, hosted services
    OBJECT_SCHEMA = "object_schema"  # json_object with a schema beside it: the server of llama-cpp-python
    JSON_OBJECT = "json_object"  # any JSON object; its form is left to the prompt
    TEXT = "text"  # nothing: the prompt asks, the parser is strict, and a bounded number of retries follows


@dataclass(frozen=True, slots=True)
class LLMSettings:
    """One model behind one endpoint.

    Attributes:
        base_url: the API's root, such as http://127.0.0.1:8000/v1.
        timeout: seconds that one request may take.
        transport_retries: further tries after a timeout, a rate limit or an error of the server.
        answer_retries: further questions after an answer that can't be used.
        concurrency: requests under way at a time.
        output: how JSON is asked for; None tries the modes of `OutputMode` until the server takes one.
        extra_body: sent with each request, for what only some servers know (a switch for thinking, say).
    """

    base_url: str
    model: str
    api_key: str = field(default="none", repr=False)
    timeout: float = 120.0
    transport_retries: int = 2
    answer_retries: int = 1
    concurrency: int = 4
    temperature: float = 0.0
    seed: int = 0
    output: OutputMode | None = None
    extra_body: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise `InputError` for a value outside what is allowed."""
        if not self.base_url.startswith(("http://", "https://")):
            raise InputError(f"LLM endpoint {self.base_url!r}: give a URL such as http://127.0.0.1:8000/v1")
        if not self.model.strip():
            raise InputError("the LLM's model name is empty: give the name that the server lists under /models")
        for name, value, least in (
            ("timeout", self.timeout, 0.001),
            ("transport_retries", self.transport_retries, 0),
            ("answer_retries", self.answer_retries, 0),
            ("concurrency", self.concurrency, 1),
            ("temperature", self.temperature, 0),
        ):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value < least:
                raise InputError(f"LLM setting {name} is {value!r}: give a number of at least {least:g}")


def parse_endpoint(text: str, **settings: object) -> LLMSettings:
    """Settings from MODEL@URL, such as qwen3-8b@http://127.0.0.1:8000/v1; the key comes from $ROAM_LLM_KEY.

    Raises `InputError`.
    """
    model, separator, url = text.rpartition("@http")
    if not separator:
        raise InputError(f"LLM {text!r}: write MODEL@URL, such as qwen3-8b@http://127.0.0.1:8000/v1")
    return _with_environment({"base_url": f"http{url}", "model": model, **settings})


def settings_from_environment(**settings: object) -> LLMSettings:
    """Settings from $ROAM_LLM_URL and $ROAM_LLM_MODEL; `InputError` when one is missing."""
    found: dict[str, object] = {}
    for key, variable in (("base_url", f"{ENVIRONMENT}_URL"), ("model", f"{ENVIRONMENT}_MODEL")):
        value = os.environ.get(variable, "")
        if not value:
            raise InputError(
                f"${variable} is not set: a prompted manager needs ${ENVIRONMENT}_URL (such as "
                f"http://127.0.0.1:8000/v1), ${ENVIRONMENT}_MODEL and, for a hosted service, ${ENVIRONMENT}_KEY"
            )
        found[key] = value
    return _with_environment({**found, **settings})


def _with_environment(values: Mapping[str, object]) -> LLMSettings:
    settings = dict(values)
    settings.setdefault("api_key", os.environ.get(f"{ENVIRONMENT}_KEY") or "none")
    extra = os.environ.get(f"{ENVIRONMENT}_EXTRA")
    if extra and "extra_body" not in settings:
        try:
            body = json.loads(extra)
        except ValueError as error:
            raise InputError(f"${ENVIRONMENT}_EXTRA is no JSON ({error}): give an object such as {{}}") from error
        if not isinstance(body, dict):
            raise InputError(f"${ENVIRONMENT}_EXTRA is a JSON {type(body).__name__}: give an object such as {{}}")
        settings["extra_body"] = body
    return LLMSettings(**settings)  # type: ignore[arg-type]  # checked by LLMSettings itself
