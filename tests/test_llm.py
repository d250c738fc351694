"""The client against a real HTTP server: structured outputs, retries, limits, costs, the response cache."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roam.errors import DataError, InputError, LLMError
from roam.llm import LLMClient, LLMSettings, OutputMode, PrefixMeter, Question, ReplyCache, Unanswered
from roam.llm.replies import UnusableReplyError, json_object, only_keys, plain_line
from roam.llm.settings import parse_endpoint, settings_from_environment
from tests.llm_server import MODEL, Stub, format_of, in_turn, serving

SCHEMA: Mapping[str, object] = {
    "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False,
}  # fmt: skip


def number(text: str) -> int:
    value = json_object(text)
    only_keys(value, "n")
    if not isinstance(value["n"], int):
        raise UnusableReplyError("n is no integer")
    return value["n"]


def question(text: str = "How many?", *, schema: Mapping[str, object] | None = SCHEMA) -> Question[int]:
    return Question(({"role": "system", "content": "Rules."}, {"role": "user", "content": text}), number, schema)


def client(stub: Stub, **settings: Any) -> LLMClient:
    settings = {"timeout": 10.0, "transport_retries": 0, **settings}
    cache, meter = settings.pop("cache", None), settings.pop("meter", None)
    return LLMClient(LLMSettings(stub.url, MODEL, **settings), cache=cache, meter=meter)


# Structured outputs -----------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_a_schema_is_sent_and_tokens_are_counted() -> None:
    with serving(lambda body: '{"n": 3}', cached=2) as stub:
        asking = client(stub)
        assert asking.ask(question("one two three")) == 3
    [body] = stub.requests
    assert body["response_format"]["json_schema"]["schema"] == SCHEMA
    assert body["response_format"]["json_schema"]["strict"] is True
    assert (body["model"], body["temperature"], body["max_tokens"]) == (MODEL, 0.0, 64)
    usage = asking.usage
    assert (usage.calls, usage.failed, usage.unusable, usage.given_up) == (1, 0, 0, 0)
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.cache_reports) == (4, 2, 2, 1)
    assert usage.seconds > 0


@pytest.mark.integration
@pytest.mark.parametrize("refusal", [400, 422, 500, 501])
@pytest.mark.parametrize("taken", ["object_schema", "json_object", None])
def test_a_server_is_asked_in_the_strictest_way_that_it_takes(refusal: int, taken: str | None) -> None:
    formats = frozenset({taken}) if taken else frozenset()
    with serving(lambda body: '{"n": 3}', formats=formats, refusal=refusal) as stub:
        asking = client(stub)
        assert asking.ask_many([question("a"), question("b")]) == [3, 3]
    tried = [format_of(body) for body in stub.requests]
    order = ["json_schema", "object_schema", "json_object", None]
    place = order.index(taken)
    assert tried == [*order[: place + 1], taken]  # found out once, then kept to
    assert asking.output_mode == list(OutputMode)[place]
    assert (asking.usage.calls, asking.usage.failed) == (place + 2, place)


@pytest.mark.integration
def test_a_given_mode_is_not_probed_and_text_questions_settle_nothing() -> None:
    with serving(lambda body: '{"n": 3}') as stub:
        asking = client(stub, output=OutputMode.JSON_OBJECT)
        assert asking.ask(question()) == 3
        free = client(stub)
        assert free.ask(question(schema=None)) == 3
        assert free.output_mode is None
    assert [format_of(body) for body in stub.requests] == ["json_object", None]


# Answers that can't be used ---------------------------------------------------------------------------------------


@pytest.mark.integration
def test_an_unusable_answer_is_asked_for_again_with_the_reason() -> None:
    with serving(in_turn(["three, I think", '{"n": 3}'])) as stub:
        asking = client(stub)
        assert asking.ask(question("How many?")) == 3
    again = stub.requests[1]["messages"]
    assert [message["role"] for message in again] == ["system", "user", "assistant", "user"]
    assert again[2]["content"] == "three, I think"
    assert "not one JSON object" in again[3]["content"]
    assert (asking.usage.calls, asking.usage.unusable, asking.usage.given_up) == (2, 1, 0)


@pytest.mark.integration
@pytest.mark.parametrize("retries", [0, 1, 3])
def test_retries_are_bounded_and_the_failure_is_told(retries: int) -> None:
    with serving(lambda body: "rubbish") as stub:
        asking = client(stub, answer_retries=retries)
        answer = asking.ask(question())
    assert isinstance(answer, Unanswered)
    assert "not one JSON object" in answer.reason
    assert asking.usage.calls == asking.usage.unusable == retries + 1
    assert asking.usage.given_up == 1


@pytest.mark.unit
@pytest.mark.parametrize(
    "text",
    ['{"n": 1}', '```json\n{"n": 1}\n```', '<think>{"n": 2}?</think>\n{"n": 1}', '```\n{"n": 1}```'],
)
def test_one_object_is_read(text: str) -> None:
    assert json_object(text) == {"n": 1}


@pytest.mark.unit
@pytest.mark.parametrize(
    "text",
    ["", "n = 1", '{"n": 1} {"n": 2}', 'It is {"n": 1}', "[1]", "1", '{"n": 1, "n": 2}', '{"n": 1', "{'n': 1}"],
)
def test_anything_but_one_object_is_refused(text: str) -> None:
    with pytest.raises(UnusableReplyError):
        json_object(text)


@pytest.mark.unit
def test_a_line_is_read() -> None:
    assert plain_line('<think>hm</think> "The user\nswims." ') == "The user swims."
    assert plain_line('"a" and "b"') == '"a" and "b"'
    with pytest.raises(UnusableReplyError):
        plain_line("<think>hm</think>")


# Transport --------------------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_rate_limits_and_errors_of_the_server_are_tried_again_and_counted_as_calls() -> None:
    with serving(lambda body: '{"n": 3}', statuses=[429, 503]) as stub:
        asking = client(stub, transport_retries=2, output=OutputMode.JSON_SCHEMA)
        assert asking.ask(question()) == 3
    assert (asking.usage.calls, asking.usage.failed) == (3, 2)


@pytest.mark.integration
def test_a_server_that_keeps_failing_leaves_the_question_unanswered() -> None:
    with serving(lambda body: '{"n": 3}', statuses=[503] * 9) as stub:
        asking = client(stub, transport_retries=1, output=OutputMode.JSON_SCHEMA)
        answer = asking.ask(question())
    assert isinstance(answer, Unanswered)
    assert "503" in answer.reason
    assert (asking.usage.calls, asking.usage.failed, asking.usage.given_up) == (2, 2, 1)


@pytest.mark.integration
def test_a_request_that_takes_too_long_is_given_up() -> None:
    with serving(lambda body: '{"n": 3}', delay=1.0) as stub:
        asking = client(stub, timeout=0.2, transport_retries=0, output=OutputMode.JSON_SCHEMA)
        answer = asking.ask(question())
    assert isinstance(answer, Unanswered)
    assert "Timeout" in answer.reason
    assert (asking.usage.calls, asking.usage.failed) == (1, 1)


@pytest.mark.integration
def test_a_prompt_that_is_too_long_concerns_that_question_only() -> None:
    with serving(lambda body: '{"n": 3}', statuses=[400]) as stub:
        asking = client(stub, transport_retries=5, output=OutputMode.JSON_SCHEMA)
        first, second = asking.ask_many([question("long"), question("short")])
    assert isinstance(first, Unanswered)
    assert second == 3
    assert len(stub.requests) == 2  # never tried again


@pytest.mark.integration
@pytest.mark.parametrize("status", [401, 403, 404])
def test_an_endpoint_that_cannot_be_worked_with_raises(status: int) -> None:
    with serving(lambda body: '{"n": 3}', statuses=[status] * 9) as stub, pytest.raises(LLMError) as caught:
        client(stub).ask(question())
    for part in (stub.url, MODEL, "ROAM_LLM_KEY"):
        assert part in str(caught.value)


@pytest.mark.integration
def test_nobody_there_raises_after_the_retries() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    asking = LLMClient(LLMSettings(f"http://127.0.0.1:{port}/v1", MODEL, transport_retries=1))
    with pytest.raises(LLMError, match="Connection"):
        asking.ask_many([question(), question("b"), question("c")])
    assert asking.usage.calls == 2


@pytest.mark.integration
def test_a_page_that_is_no_completion_is_an_unusable_answer() -> None:
    with serving(lambda body: "", usage=False) as stub:
        asking = client(stub, answer_retries=0)
        answer = asking.ask(question())
    assert isinstance(answer, Unanswered)
    assert (asking.usage.unmetered, asking.usage.input_tokens) == (1, 0)


@pytest.mark.unit
def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(InputError, match=r"roam-distilled\[llm\]"):
        LLMClient(LLMSettings("http://127.0.0.1:9/v1", MODEL)).ask(question())


# Many questions ---------------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_requests_under_way_are_limited_and_answers_keep_their_order() -> None:
    def answer(body: Mapping[str, Any]) -> str:
        return json.dumps({"n": int(body["messages"][-1]["content"])})

    with serving(answer, delay=0.05) as stub:
        asking = client(stub, concurrency=3)
        assert asking.ask_many([question(str(n)) for n in range(12)]) == list(range(12))
        assert 1 < stub.most_in_flight <= 3
        stub.most_in_flight = 0
        assert client(stub, concurrency=1).ask_many([question(str(n)) for n in range(4)]) == list(range(4))
        assert stub.most_in_flight == 1
    assert asking.usage.calls == 12
    assert LLMClient(asking.settings).ask_many([]) == []


# The response cache -----------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_a_repeated_run_sends_nothing_and_takes_the_same_way(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"
    with serving(in_turn(["rubbish", '{"n": 3}'])) as stub:
        with ReplyCache(path) as cache:
            assert client(stub, cache=cache).ask(question()) == 3
        with ReplyCache(path) as cache:
            again = client(stub, cache=cache)
            assert again.ask(question()) == 3
    assert len(stub.requests) == 2
    assert (again.usage.calls, again.usage.replayed, again.usage.unusable) == (0, 2, 1)


@pytest.mark.integration
def test_another_model_setting_or_question_is_another_request(tmp_path: Path) -> None:
    with serving(lambda body: '{"n": 3}') as stub, ReplyCache(tmp_path / "c.sqlite") as cache:
        first = client(stub, cache=cache)
        first.ask(question())
        others = [replace(first.settings, model="other"), replace(first.settings, temperature=1.0),
                  replace(first.settings, seed=1), replace(first.settings, extra_body={"top_k": 1})]  # fmt: skip
        for settings in others:
            LLMClient(settings, cache=cache).ask(question())
        first.ask(question("Another?"))
        first.ask(question(schema=None))
    assert len(stub.requests) == len(others) + 3
    assert stub.requests[4]["top_k"] == 1


@pytest.mark.unit
def test_a_file_that_is_no_cache_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    path.write_text("no database " * 100, encoding="utf-8")
    with pytest.raises(DataError, match="response cache"):
        ReplyCache(path)


# Prefixes ---------------------------------------------------------------------------------------------------------


def common(one: str, two: str) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))


@pytest.mark.unit
@given(st.lists(st.text("ab", min_size=1, max_size=8), min_size=1, max_size=12))
def test_the_meter_finds_the_longest_prefix_seen_before(prompts: list[str]) -> None:
    meter = PrefixMeter()
    for place, prompt in enumerate(prompts):
        longest = max((common(prompt, other) for other in prompts[:place]), default=0)
        assert meter.share(prompt) == longest / len(prompt)


@pytest.mark.integration
def test_shared_tokens_follow_the_meter() -> None:
    with serving(lambda body: '{"n": 3}') as stub:
        asking = client(stub, meter=PrefixMeter())
        asking.ask(question("one two"))
        assert asking.usage.shared_tokens == 0
        before = asking.usage.copy()
        asking.ask(question("one two"))
    more = asking.usage.since(before)
    assert (more.calls, more.input_tokens) == (1, 3)
    assert more.shared_tokens == pytest.approx(3.0)


# Settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.unit
def test_settings_by_name_and_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URL", "MODEL", "KEY", "EXTRA"):
        monkeypatch.delenv(f"ROAM_LLM_{name}", raising=False)
    with pytest.raises(InputError, match="ROAM_LLM_URL"):
        settings_from_environment()
    monkeypatch.setenv("ROAM_LLM_URL", "http://127.0.0.1:1/v1")
    with pytest.raises(InputError, match="ROAM_LLM_MODEL"):
        settings_from_environment()
    monkeypatch.setenv("ROAM_LLM_MODEL", "m")
    monkeypatch.setenv("ROAM_LLM_KEY", "secret")
    monkeypatch.setenv("ROAM_LLM_EXTRA", '{"top_k": 1}')
    found = settings_from_environment(timeout=3.0)
    assert (found.base_url, found.model, found.api_key, found.timeout) == ("http://127.0.0.1:1/v1", "m", "secret", 3.0)
    assert found.extra_body == {"top_k": 1}
    assert "secret" not in repr(found)
    named = parse_endpoint("org/model@v2@https://host/v1")
    assert (named.model, named.base_url, named.api_key) == ("org/model@v2", "https://host/v1", "secret")
    monkeypatch.setenv("ROAM_LLM_EXTRA", "[]")
    with pytest.raises(InputError, match="ROAM_LLM_EXTRA"):
        settings_from_environment()


@pytest.mark.unit
@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"base_url": "127.0.0.1:8000"}, "http://"), ({"model": " "}, "model"), ({"timeout": 0}, "timeout"),
        ({"concurrency": 0}, "concurrency"), ({"answer_retries": -1}, "answer_retries"),
        ({"temperature": "hot"}, "hot"),
    ],
)  # fmt: skip
def test_bad_settings(values: Mapping[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        LLMSettings(**{"base_url": "http://h/v1", "model": "m", **values})


@pytest.mark.unit
def test_an_endpoint_without_url_is_refused() -> None:
    with pytest.raises(InputError, match="MODEL@URL"):
        parse_endpoint("qwen3-8b")
