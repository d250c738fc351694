"""The store over HTTP: every endpoint, every refusal, limits, metrics and traces."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from roam.errors import ConfigError
from roam.server import Settings
from roam.server.limits import RateLimit
from roam.server.problems import TooManyError
from tests.server_app import BEAGLE, DOG, GHENT, LYON, MAYBE, client_of, make_app


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with client_of(make_app(tmp_path)) as client:
        yield client


def add(client: TestClient, text: str, user: str = "maya", **more: Any) -> Any:
    reply = client.post("/v1/memories", json={"text": text, "user": user, **more})
    assert reply.status_code == 201, reply.text
    return reply.json()


def get(client: TestClient, path: str, **query: Any) -> Any:
    reply = client.get(f"/v1/{path}", params=query)
    assert reply.status_code == 200, reply.text
    return reply.json()


def post(client: TestClient, path: str, **body: Any) -> Any:
    reply = client.post(f"/v1/{path}", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


@pytest.mark.integration
def test_a_change_of_state_from_add_to_erase(client: TestClient) -> None:
    lyon = add(client, LYON, observed_at="2026-01-05", source="chat-1", id="lyon")
    ghent = add(client, GHENT, observed_at="2026-03-01")
    assert (lyon["relation"], ghent["relation"]) == ("IND", "CON")
    assert ghent["demoted_ids"] == ["lyon"]
    [view] = get(client, "memories", user="maya")["items"]
    assert view["text"] == f"{LYON} -> {GHENT}"
    assert view["observed_at"] == "2026-03-01T00:00:00Z"
    [behind] = get(client, "evidence", user="maya", id=view["id"])["items"]
    assert (behind["id"], behind["source"]) == ("lyon", "chat-1")
    assert get(client, "memory", user="maya", id="lyon")["role"] == "evidence"
    found = post(client, "search", query="Where does the user live?", user="maya", budget=50)
    assert found["context"] == view["text"]
    why = get(client, "explain", user="maya", id=ghent["observation_id"])
    assert why["decision"]["judgements"][0]["probabilities"]["CON"] == pytest.approx(0.96)
    assert why["candidate_texts"] == {"lyon": LYON}
    assert get(client, "as-of", user="maya", time="2026-02-01")["items"][0]["text"] == LYON
    retracted = post(client, "retract", user="maya", id=view["id"])
    assert [item["id"] for item in get(client, "memories", user="maya")["items"]] == ["lyon"]
    post(client, "undo", user="maya", event_id=retracted["id"])
    assert [item["id"] for item in get(client, "memories", user="maya")["items"]] == [view["id"]]
    post(client, "redo", user="maya", event_id=retracted["id"])
    assert [event["kind"] for event in get(client, "history", user="maya")["items"]][:3] == ["decision"] * 2 + [
        "retract"
    ]
    assert post(client, "erase", user="maya", id="lyon")["observations"] == 1
    assert client.get("/v1/memory", params={"user": "maya", "id": "lyon"}).status_code == 404
    assert post(client, "erase-user", user="maya", confirm="maya")["scrubbed"] is True
    assert get(client, "users") == {"users": []}


@pytest.mark.integration
def test_a_doubtful_pair_is_listed_and_decided(client: TestClient) -> None:
    add(client, LYON, id="lyon")
    assert add(client, MAYBE, id="maybe")["review"] == ["lyon"]
    [doubt] = get(client, "reviews", user="maya")["items"]
    assert (doubt["relation"], doubt["old"]["id"], doubt["new"]["id"]) == ("CON", "lyon", "maybe")
    post(client, "reviews", user="maya", new_id="maybe", old_id="lyon", relation="CON")
    assert get(client, "reviews", user="maya")["items"] == []
    assert [view["id"] for view in get(client, "memories", user="maya")["items"]] == ["maybe"]


@pytest.mark.integration
def test_pairs_are_classified_without_storing_anything(client: TestClient) -> None:
    pairs = [{"old": DOG, "new": BEAGLE}, {"old": BEAGLE, "new": DOG}, {"old": LYON, "new": DOG}]
    reply = post(client, "relations", pairs=pairs)
    assert [result["relation"] for result in reply["results"]] == ["OSN", "NSO", "IND"]
    assert reply["model"] == "scripted"
    assert sum(reply["results"][0]["probabilities"].values()) == pytest.approx(1.0)
    assert get(client, "users") == {"users": []}


@pytest.mark.integration
def test_a_batch_is_stored_whole_or_not_at_all(client: TestClient) -> None:
    facts = [{"text": text, "user": "maya"} for text in (LYON, DOG, BEAGLE)]
    reply = client.post("/v1/memories/batch", json={"observations": facts})
    assert [decision["relation"] for decision in reply.json()["decisions"]] == ["IND", "IND", "OSN"]
    refused = client.post(
        "/v1/memories/batch", json={"observations": [{"text": GHENT, "user": "maya"}, {"text": " ", "user": "maya"}]}
    )
    assert refused.status_code == 422
    assert "observation 1" in refused.json()["message"]
    assert len(get(client, "memories", user="maya")["items"]) == 2


@pytest.mark.integration
def test_lists_come_in_pages(client: TestClient) -> None:
    for number in range(5):
        add(client, f"Fact number {number}.", id=f"f{number}")
    seen: list[str] = []
    cursor = None
    while True:
        page = get(client, "memories", user="maya", limit=2, **({} if cursor is None else {"cursor": cursor}))
        seen += [item["id"] for item in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == [f"f{number}" for number in range(5)]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("path", "body", "status", "error"),
    [
        ("memories", {"text": "", "user": "maya"}, 422, "RequestValidationError"),
        ("memories", {"text": "\x07", "user": "maya"}, 422, "InputError"),
        ("memories", {"text": "x" * 2001, "user": "maya"}, 422, "InputError"),
        ("memories", {"text": "A fact."}, 422, "RequestValidationError"),
        ("memories", {"text": "A fact.", "user": " maya"}, 422, "InputError"),
        ("memories", {"text": "A fact.", "user": "maya", "observed_at": "soon"}, 422, "InputError"),
        ("memories", {"text": "A fact.", "user": "maya", "oberved_at": "2026-01-01"}, 422, "RequestValidationError"),
        ("search", {"query": "?", "user": "maya", "budget": 0}, 422, "RequestValidationError"),
        ("search", {"query": "?", "user": "maya", "include_evidence": 0}, 422, "RequestValidationError"),
        ("retract", {"user": "maya", "id": "nothing"}, 404, "NotFoundError"),
        ("reviews", {"user": "maya", "new_id": "a", "old_id": "b", "relation": "CON"}, 404, "NotFoundError"),
        ("reviews", {"user": "maya", "new_id": "a", "old_id": "b", "relation": "BAD"}, 422, "RequestValidationError"),
        ("erase-user", {"user": "maya", "confirm": "may"}, 422, "InputError"),
        ("relations", {"pairs": []}, 422, "RequestValidationError"),
        ("relations", {"pairs": [{"old": "a b", "new": "c"}] * 257}, 422, "RequestValidationError"),
        ("nowhere", {}, 404, "HTTPException"),
    ],
)
def test_bad_input_is_refused_in_one_form_and_changes_nothing(
    client: TestClient, path: str, body: dict[str, Any], status: int, error: str
) -> None:
    reply = client.post(f"/v1/{path}", json=body)
    problem = reply.json()
    assert (reply.status_code, problem["error"]) == (status, error)
    assert problem["message"]
    assert problem["request_id"] == reply.headers["x-request-id"]
    assert get(client, "users") == {"users": []}


@pytest.mark.integration
def test_a_wrong_method_is_told_the_right_ones(client: TestClient) -> None:
    reply = client.delete("/v1/memories")
    assert (reply.status_code, reply.headers["allow"]) == (405, "GET, POST")
    assert client.get("/v1/search").headers["allow"] == "POST"


@pytest.mark.integration
def test_what_is_no_json_is_refused(client: TestClient) -> None:
    for content in (b"{", b"\xff\xfe", b"[" * 100_000, b'{"text": "\\ud800", "user": "maya"}'):
        reply = client.post("/v1/memories", content=content, headers={"content-type": "application/json"})
        assert reply.status_code in (400, 422), content[:20]
        assert reply.json()["request_id"]


@pytest.mark.integration
def test_another_users_facts_are_not_found(client: TestClient) -> None:
    add(client, LYON, user="maya", id="lyon")
    for path in ("memory", "explain", "evidence"):
        assert client.get(f"/v1/{path}", params={"user": "noor", "id": "lyon"}).status_code == 404
    for path in ("retract", "erase"):
        assert client.post(f"/v1/{path}", json={"user": "noor", "id": "lyon"}).status_code == 404
    assert client.post("/v1/memories", json={"text": DOG, "user": "noor", "id": "lyon"}).status_code == 422
    assert post(client, "search", query=LYON, user="noor")["hits"] == []
    assert get(client, "memory", user="maya", id="lyon")["role"] == "primary"


@pytest.mark.integration
def test_a_body_over_the_limit_is_refused_with_and_without_a_length(tmp_path: Path) -> None:
    with client_of(make_app(tmp_path, max_body=1000)) as client:
        big = b'{"text": "' + b"x" * 2000 + b'", "user": "maya"}'
        headers = {"content-type": "application/json"}
        assert client.post("/v1/memories", content=big, headers=headers).status_code == 413
        chunks = (big[start : start + 100] for start in range(0, len(big), 100))
        reply = client.post("/v1/memories", content=chunks, headers=headers)
        assert (reply.status_code, reply.json()["error"]) == (413, "TooLargeError")


@pytest.mark.integration
def test_too_many_requests_are_told_when_to_come_back(tmp_path: Path) -> None:
    with client_of(make_app(tmp_path, rate=0.5, burst=3)) as client:
        codes = [client.get("/v1/users").status_code for _ in range(5)]
        assert codes == [200, 200, 200, 429, 429]
        assert 1 <= int(client.get("/v1/users").headers["retry-after"]) <= 3
        assert client.get("/v1/health").status_code == 200  # a probe is never limited


@pytest.mark.unit
def test_the_rate_refills_with_time_and_by_caller() -> None:
    now = [0.0]
    limit = RateLimit(rate=2.0, burst=2, clock=lambda: now[0])
    limit.take("a")
    limit.take("a")
    with pytest.raises(TooManyError, match=r"0\.5 s"):
        limit.take("a")
    limit.take("b")
    now[0] = 0.5
    limit.take("a")
    with pytest.raises(TooManyError):
        limit.take("a")
    now[0] = 1000.0
    limit.take("a")
    limit.take("a")
    with pytest.raises(TooManyError):
        limit.take("a")


@pytest.mark.integration
def test_pages_of_other_sites_cannot_use_a_server_without_keys(client: TestClient) -> None:
    assert client.get("/v1/users", headers={"host": "evil.example"}).status_code == 403
    assert client.get("/v1/users", headers={"origin": "https://evil.example"}).status_code == 403
    assert client.get("/v1/users", headers={"origin": "http://localhost"}).status_code == 200
    reply = client.post(
        "/v1/memories", content=b'{"text": "A fact.", "user": "maya"}', headers={"content-type": "text/plain"}
    )
    assert reply.status_code == 422  # what a form of another site may send without asking first
    assert "default-src 'none'" in client.get("/").headers["content-security-policy"]


@pytest.mark.unit
@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.org"])
def test_an_open_door_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="without API keys"):
        Settings(host=host)


@pytest.mark.unit
def test_settings_refuse_what_cannot_work(tmp_path: Path) -> None:
    for wrong in ({"rate": 0}, {"burst": 0}, {"max_body": -1}, {"port": 70_000}, {"db": "{tenant}.db"}):
        with pytest.raises(ConfigError):
            Settings(**wrong)
    assert Settings(host="::1").host == "::1"
    assert Settings(db="postgresql://maya:secret@db:5432/app").place == "postgresql://maya@db:5432/app"
    assert Settings(db="memory.db").place == "memory.db"
    with pytest.raises(ConfigError, match="tenant"):
        Settings(keys=tmp_path / "keys.json").store_of("acme")
    apart = Settings(keys=tmp_path / "keys.json", db="{tenant}.db")
    assert (apart.store_of("acme"), apart.store_of(None)) == ("acme.db", "shared.db")
    for name in ("../acme", "Acme", "", "shared", "a" * 64):
        with pytest.raises(ConfigError):
            apart.store_of(name)


@pytest.mark.integration
def test_metrics_count_requests_facts_and_passes_and_name_nobody(client: TestClient) -> None:
    add(client, LYON, user="maya-secret")
    add(client, GHENT, user="maya-secret")
    client.get("/v1/nowhere-secret")
    text = client.get("/v1/metrics").text
    assert 'roam_http_requests_total{method="POST",route="/v1/memories",status="201"} 2.0' in text
    assert 'roam_facts_total{relation="CON"} 1.0' in text
    assert "roam_store_forward_passes_total 1.0" in text
    assert "roam_store_llm_calls_total 0.0" in text
    assert "roam_pass_pairs_count 1.0" in text
    assert "secret" not in text


@pytest.mark.integration
def test_the_description_names_every_path_and_asks_for_no_key_here(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    assert {"/v1/memories", "/v1/search", "/v1/explain", "/v1/relations", "/v1/health"} <= set(schema["paths"])
    assert "securitySchemes" not in schema["components"]
    operations = [operation for path in schema["paths"].values() for operation in path.values()]
    assert all(operation.get("description") for operation in operations)
    assert not any("security" in operation for operation in operations)


@pytest.mark.integration
@pytest.mark.skipif(importlib.util.find_spec("opentelemetry.sdk") is None, reason="opentelemetry-sdk is not installed")
def test_a_request_its_write_and_its_pass_are_one_trace(tmp_path: Path) -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    with client_of(make_app(tmp_path)) as client:
        parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        client.post("/v1/relations", json={"pairs": [{"old": DOG, "new": BEAGLE}]}, headers={"traceparent": parent})
        add(client, LYON, user="maya-secret")
        get(client, "memories", user="maya-secret")
    by_name = {span.name: span for span in spans.get_finished_spans()}
    assert {"POST", "roam.classify", "roam.write"} <= set(by_name)
    told = [span.attributes["http.route"] for span in spans.get_finished_spans() if span.name == "POST"]
    assert told == ["/v1/relations", "/v1/memories"]
    assert f"{by_name['roam.classify'].context.trace_id:032x}" == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert {span.name for span in spans.get_finished_spans()} == {"POST", "GET", "roam.classify", "roam.write"}
    told_of_all = "".join(span.to_json() for span in spans.get_finished_spans())
    assert LYON not in told_of_all
    assert "secret" not in told_of_all  # no span of the framework's own tells the query
