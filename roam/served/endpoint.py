"""JSON over HTTP to a model server, through the OpenAI client: its retries, time limits and keys."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from roam.errors import InputError, LLMError
from roam.llm.settings import LLMSettings

if TYPE_CHECKING:
    from openai import OpenAI

Part = TypeVar("Part")
Reply = TypeVar("Reply")


class Endpoint:
    """One server; threads may share it. Nothing is sent before the first request."""

    def __init__(self, settings: LLMSettings) -> None:
        self.settings = settings
        self._client: OpenAI | None = None
        self._lock = threading.Lock()

    @property
    def client(self) -> OpenAI:
        """The OpenAI client of the URL as it was given; `InputError` where the package is missing."""
        with self._lock:
            if self._client is None:
                try:
                    from openai import OpenAI
                except ModuleNotFoundError as error:
                    raise InputError(
                        "the package openai is not installed: pip install 'roam-distilled[llm]' for served managers"
                    ) from error
                settings = self.settings
                self._client = OpenAI(
                    base_url=settings.base_url, api_key=settings.api_key, timeout=settings.timeout,
                    max_retries=settings.transport_retries,
                )  # fmt: skip
            return self._client

    def call(self, request: Callable[[OpenAI], Reply]) -> Reply:
        """Make one request, tried again as the settings say. Raises `LLMError` with what to check."""
        client = self.client
        import openai

        try:
            return request(client)
        except openai.APIError as error:
            cause = error.__cause__ or error
            raise LLMError(
                f"{self.settings.base_url}, model {self.settings.model!r}: {type(error).__name__}: {cause}; check that "
                "the server runs, its URL, and that it serves this model for this task"
            ) from error

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The JSON that the server answers to `body` at `path` of its root. Raises `LLMError`."""
        root = self.settings.base_url.rstrip("/").removesuffix("/v1")
        return self.call(lambda client: client.with_options(base_url=root).post(path, cast_to=object, body=body))

    def each(self, parts: Sequence[Part], ask: Callable[[Part], Reply]) -> list[Reply]:
        """Ask about each part, as many at a time as the settings allow; replies in the order of the parts."""
        if len(parts) < 2 or self.settings.concurrency == 1:
            return [ask(part) for part in parts]
        with ThreadPoolExecutor(self.settings.concurrency) as pool:
            return list(pool.map(ask, parts))


def malformed(settings: LLMSettings, what: str) -> LLMError:
    """The error for an answer of another form than the server's schema says."""
    return LLMError(f"{settings.base_url}, model {settings.model!r} answered {what}; is it such a server?")
