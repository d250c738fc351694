"""Questions to a model behind an OpenAI-compatible endpoint, and what becomes of its answers.

A question carries its parser. An answer that the parser refuses is asked for again, a bounded number of times; what is
then still without a usable answer comes back as `Unanswered`, for the caller to keep and to show. Only an endpoint that
can't be worked with at all (nobody there, wrong key, unknown model) raises.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from roam.errors import InputError, LLMError
from roam.llm.cache import ReplyCache
from roam.llm.replies import UnusableReplyError
from roam.llm.settings import LLMSettings, OutputMode
from roam.llm.usage import PrefixMeter, Usage

if TYPE_CHECKING:
    from openai import APIError

T = TypeVar("T")
Message = Mapping[str, str]
LONGEST_PAUSE: Final = 8.0  # seconds between two tries
REFUSES_MODE: Final = frozenset({400, 415, 422, 500, 501})
"""Statuses with which servers refuse a response format that they do not know."""
REFUSES_REQUEST: Final = frozenset({400, 413, 422})
"""Statuses that say that this request, such as a prompt that is too long, will never be answered."""
QUOTED: Final = 500  # characters of an unusable answer that the next try shows the model
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """Messages whose common part comes first, and how to read the answer.

    `parse` raises `UnusableReplyError` for an answer that is not what was asked for. `schema` is the JSON schema of the
    answer; None asks for plain text.
    """

    messages: tuple[Message, ...]
    parse: Callable[[str], T]
    schema: Mapping[str, object] | None = None
    max_tokens: int = 64


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A question that no usable answer came to, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Reply:
    text: str
    input_tokens: int | None = None
    output_tokens: int = 0
    cached_tokens: int | None = None


class LLMClient:
    """One model behind one endpoint; threads may share a client. `usage` counts what it costs."""

    def __init__(
        self, settings: LLMSettings, *, cache: ReplyCache | None = None, meter: PrefixMeter | None = None
    ) -> None:
        """Nothing is sent yet. With `cache`, a request that was answered before is not sent at all."""
        self.settings, self.cache, self.meter = settings, cache, meter
        self.usage = Usage()
        self._mode = settings.output
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(settings.concurrency)
        self._connection: Any = None

    @property
    def output_mode(self) -> OutputMode | None:
        """How this server is asked for JSON; None until it took a first request for it."""
        return self._mode

    def ask_many(self, questions: Sequence[Question[T]]) -> list[T | Unanswered]:
        """Answers in the order of the questions.

        The first goes alone: it finds out what the server can do and fills its prefix cache for the others.
        Raises `LLMError` for an endpoint that can't be worked with.
        """
        if not questions:
            return []
        first = self.ask(questions[0])
        if len(questions) == 1:
            return [first]
        with ThreadPoolExecutor(self.settings.concurrency) as pool:
            rest = [pool.submit(self.ask, question) for question in questions[1:]]
            try:
                return [first, *(future.result() for future in rest)]
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def ask(self, question: Question[T]) -> T | Unanswered:
        """The parsed answer, or why there is none. Raises `LLMError` for an endpoint that can't be worked with."""
        messages = list(question.messages)
        reason = ""
        for _ in range(self.settings.answer_retries + 1):
            reply = self._reply(messages, question)
            if isinstance(reply, Unanswered):
                reason = reply.reason
                break
            try:
                return question.parse(reply.text)
            except UnusableReplyError as error:
                reason = str(error)
                self._count(unusable=1)
                messages = [*question.messages, *_correction(reply.text, reason)]
        self._count(given_up=1)
        _LOG.warning("no usable answer from %s: %s", self.settings.model, reason)
        return Unanswered(reason)

    def _reply(self, messages: Sequence[Message], question: Question[Any]) -> _Reply | Unanswered:
        """One answer, from the cache if it is there; the retries of the transport are in it."""
        key = None
        if self.cache is not None:
            key = self.cache.key(self._identity(messages, question))
            known = self.cache.get(key)
            if known is not None:
                self._count(replayed=1)
                return _Reply(known)
        reply = self._request(messages, question)
        if key is not None and self.cache is not None and isinstance(reply, _Reply):
            self.cache.keep(key, reply.text)
        return reply

    def _identity(self, messages: Sequence[Message], question: Question[Any]) -> dict[str, object]:
        settings = self.settings
        return {
            "endpoint": settings.base_url,
            "model": settings.model,
            "messages": list(messages),
            "schema": question.schema,
            "max_tokens": question.max_tokens,
            "temperature": settings.temperature,
            "seed": settings.seed,
            "output": settings.output,
            "extra": settings.extra_body,
        }

    def _request(self, messages: Sequence[Message], question: Question[Any]) -> _Reply | Unanswered:
        """Send until there is an answer, at most as often as the settings allow."""
        self._connected()  # says in words that the package is missing, where it is
        import openai

        mode = OutputMode.TEXT if question.schema is None else self._mode
        probed = list(OutputMode) if mode is None else [mode]
        tries = 0
        while True:
            try:
                reply = self._send(messages, question, probed[0])
            except (openai.AuthenticationError, openai.PermissionDeniedError, openai.NotFoundError) as error:
                raise self._unworkable(error) from error
            except openai.APIError as error:
                failure: APIError = error
            else:
                if question.schema is not None and self._mode is None:
                    self._mode = probed[0]
                    _LOG.info("%s answers in mode %s", self.settings.base_url, self._mode)
                return reply
            status = getattr(failure, "status_code", None)
            if len(probed) > 1 and status in REFUSES_MODE:
                probed.pop(0)
                continue
            tries += 1
            if status in REFUSES_REQUEST:
                return Unanswered(f"{type(failure).__name__}: {failure.message}")
            if tries > self.settings.transport_retries:
                if isinstance(failure, openai.APIConnectionError) and not isinstance(failure, openai.APITimeoutError):
                    raise self._unworkable(failure) from failure
                return Unanswered(f"{type(failure).__name__}: {failure.message}")
            time.sleep(_pause(failure, tries))

    def _send(self, messages: Sequence[Message], question: Question[Any], mode: OutputMode) -> _Reply:
        settings = self.settings
        request: dict[str, Any] = {
            "model": settings.model,
            "messages": list(messages),
            "max_tokens": question.max_tokens,
            "temperature": settings.temperature,
            "seed": settings.seed,
        }
        if settings.extra_body:
            request["extra_body"] = dict(settings.extra_body)
        form = _response_format(mode, question.schema)
        if form is not None:
            request["response_format"] = form
        share = 0.0 if self.meter is None else self.meter.share(json.dumps(list(messages), ensure_ascii=False))
        connection = self._connected()
        with self._slots:
            started = time.perf_counter()
            done = False
            try:
                completion = connection.chat.completions.create(**request)
                done = True
            finally:
                self._count(calls=1, failed=int(not done), seconds=time.perf_counter() - started)
        reply = _read(completion)
        self._meter(reply, share)
        return reply

    def _connected(self) -> Any:
        with self._lock:
            if self._connection is None:
                try:
                    from openai import OpenAI
                except ModuleNotFoundError as error:
                    raise InputError(
                        "the package openai is not installed: pip install 'roam-distilled[llm]' for prompted managers"
                    ) from error
                # Retries are counted here, as calls, so the library must not make any of its own.
                self._connection = OpenAI(
                    base_url=self.settings.base_url,
                    api_key=self.settings.api_key,
                    timeout=self.settings.timeout,
                    max_retries=0,
                )
            return self._connection

    def _meter(self, reply: _Reply, share: float) -> None:
        if reply.input_tokens is None:
            self._count(unmetered=1)
            return
        self._count(
            input_tokens=reply.input_tokens,
            output_tokens=reply.output_tokens,
            cached_tokens=reply.cached_tokens or 0,
            cache_reports=int(reply.cached_tokens is not None),
            shared_tokens=share * reply.input_tokens,
        )

    def _count(self, **counts: float) -> None:
        with self._lock:
            for name, more in counts.items():
                setattr(self.usage, name, getattr(self.usage, name) + more)

    def _unworkable(self, error: APIError) -> LLMError:
        cause = error.__cause__ or error
        return LLMError(
            f"{self.settings.base_url}, model {self.settings.model!r}: {type(error).__name__}: {cause}; check the URL "
            "(it ends in /v1 on most servers), the model's name and $ROAM_LLM_KEY"
        )


def _response_format(mode: OutputMode, schema: Mapping[str, object] | None) -> dict[str, object] | None:
    if schema is None or mode is OutputMode.TEXT:
        return None
    if mode is OutputMode.JSON_SCHEMA:
        return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
    if mode is OutputMode.OBJECT_SCHEMA:
        return {"type": "json_object", "schema": schema}
    return {"type": "json_object"}


def _correction(answer: str, reason: str) -> list[Message]:
    """What is said after an unusable answer; roles keep taking turns, which some chat templates insist on."""
    return [
        {"role": "assistant", "content": answer[:QUOTED] or "(nothing)"},
        {"role": "user", "content": f"That can't be used: {reason}. Answer again, only in the form asked for."},
    ]


def _pause(error: APIError, tries: int) -> float:
    """Seconds to wait: what the server asks for, else twice as long each time."""
    response = getattr(error, "response", None)
    asked = "" if response is None else response.headers.get("retry-after", "")
    return min(LONGEST_PAUSE, float(asked) if asked.isdecimal() else 0.25 * 2**tries)


def _read(completion: Any) -> _Reply:
    """Text and token counts of a completion; servers name the cached part of the input differently."""
    choices = getattr(completion, "choices", None) or []  # a page of some proxy has none and reads as empty
    text = (choices[0].message.content or "") if choices else ""
    usage = getattr(completion, "usage", None)
    if usage is None:
        return _Reply(text)
    details = getattr(usage, "prompt_tokens_details", None)
    cached = getattr(details, "cached_tokens", None)
    if cached is None:
        cached = getattr(usage, "prompt_cache_hit_tokens", None)  # DeepSeek
    if cached is None:
        timings = getattr(completion, "timings", None)  # llama.cpp's own server
        cached = timings.get("cache_n") if isinstance(timings, dict) else None
    return _Reply(text, usage.prompt_tokens, usage.completion_tokens or 0, cached)
