"""What a hostile caller tries: every route with another's key, odd hosts and methods, floods, failures that tell."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from roam.errors import ConfigError, LLMError, StoreError
from roam.server import Settings
from roam.server.keys import add_key
from roam.server.limits import Waiting
from roam.server.metrics import Metrics
from roam.server.problems import BusyError
from roam.server.run import listen
from roam.server.stores import Stores
from tests.server_app import DOG, GHENT, LYON, client_of, make_app
from tests.stubs import ScriptedRelations

Operation = tuple[str, str]
# A valid request of every operation that names a user, with ids and events of maya's.
OF_A_USER: dict[Operation, dict[str, Any]] = {
    ("POST", "memories"): {"text": DOG},
    ("POST", "memories/batch"): {"text": DOG},
    ("GET", "memories"): {},
    ("GET", "memory"): {"id": "lyon"},
    ("GET", "evidence"): {"id": "lyon"},
    ("GET", "explain"): {"id": "lyon"},
    ("GET", "history"): {},
    ("GET", "as-of"): {"time": "2026-12-01"},
    ("GET", "reviews"): {},
    ("POST", "reviews"): {"new_id": "ghent", "old_id": "lyon", "relation": "IND"},
    ("POST", "search"): {"query": LYON},
    ("POST", "retract"): {"id": "lyon"},
    ("POST", "undo"): {"event_id": "EVENT"},
    ("POST", "redo"): {"event_id": "EVENT"},
    ("POST", "erase"): {"id": "lyon"},
    ("POST", "erase-user"): {"confirm": "maya"},
}
OF_NOBODY: set[Operation] = {("GET", "users"), ("POST", "relations"), ("GET", "metrics")}
OPEN: set[Operation] = {("GET", "health")}


def send(client: TestClient, key: str | None, operation: Operation, user: str, fields: dict[str, Any]) -> Any:
    method, path = operation
    content: dict[str, Any] = {"user": user, **fields}
    if path == "memories/batch":
        content = {"observations": [{"user": "noor", "text": "Likes tea."}, content]}
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return client.request(method, f"/v1/{path}", headers=headers, **{"params" if method == "GET" else "json": content})


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


@pytest.fixture
def client(keys: Path, tmp_path: Path) -> Iterator[TestClient]:
    add_key(keys, "first", tenant=None, users=["maya"])
    with client_of(make_app(tmp_path, keys=keys)) as client:
        yield client


@pytest.mark.integration
def test_every_route_keeps_every_user_apart(client: TestClient, keys: Path) -> None:
    """A route that is added has to be listed here, or this fails."""
    described = client.get("/openapi.json").json()["paths"]
    operations = {(method.upper(), path.removeprefix("/v1/")) for path in described for method in described[path]}
    assert operations == {*OF_A_USER, *OF_NOBODY, *OPEN}
    maya, noor = (add_key(keys, user, tenant=None, users=[user]) for user in ("maya", "noor"))
    for name, text in (("lyon", LYON), ("ghent", GHENT)):
        assert send(client, maya, ("POST", "memories"), "maya", {"text": text, "id": name}).status_code == 201
    events = send(client, maya, ("GET", "history"), "maya", {}).json()["items"]
    before = send(client, maya, ("GET", "explain"), "maya", {"id": "lyon"}).json()
    for operation, given in OF_A_USER.items():
        fields = {name: events[-1]["id"] if value == "EVENT" else value for name, value in given.items()}
        for key, status in ((None, 401), ("roam_wrong", 401), (noor, 403)):
            assert send(client, key, operation, "maya", fields).status_code == status, (operation, key)
        if {"id", "new_id", "event_id"} & set(fields):  # under the caller's own name, maya's things do not exist
            reply = send(client, noor, operation, "noor", fields)
            assert (reply.status_code, LYON in reply.text) == (404, False), operation
    for operation in OF_NOBODY:
        assert send(client, None, operation, "maya", {}).status_code == 401, operation
    for operation in (("GET", "memories"), ("GET", "history"), ("GET", "reviews")):
        assert send(client, noor, operation, "noor", {}).json()["items"] == []
    assert send(client, noor, ("POST", "search"), "noor", {"query": LYON}).json()["hits"] == []
    assert send(client, maya, ("GET", "history"), "maya", {}).json()["items"] == events
    assert send(client, maya, ("GET", "explain"), "maya", {"id": "lyon"}).json() == before


@pytest.mark.integration
def test_an_events_key_of_another_user_gives_nothing_away(client: TestClient, keys: Path) -> None:
    maya, noor = (add_key(keys, user, tenant=None, users=[user]) for user in ("maya", "noor"))
    for key, user in ((maya, "maya"), (noor, "noor")):
        assert send(client, key, ("POST", "memories"), user, {"text": LYON, "id": f"of-{user}"}).status_code == 201
    first = send(client, maya, ("POST", "retract"), "maya", {"id": "of-maya", "key": "once"})
    assert first.status_code == 200
    again = send(client, noor, ("POST", "retract"), "noor", {"id": "of-noor", "key": "once"})
    assert again.status_code == 422
    assert "maya" not in again.text
    assert len(send(client, noor, ("GET", "memories"), "noor", {}).json()["items"]) == 1


@pytest.mark.integration
@pytest.mark.parametrize("headers", [{"host": "["}, {"host": "localhost", "origin": "http://["}, {"host": "[::1"}])
def test_a_host_that_is_no_address_is_refused_in_the_one_form(tmp_path: Path, headers: dict[str, str]) -> None:
    with client_of(make_app(tmp_path)) as client:
        reply = client.get("/v1/health", headers=headers)
    assert (reply.status_code, reply.json()["error"]) == (403, "ForbiddenError")


@pytest.mark.integration
def test_made_up_methods_do_not_fill_the_metrics(tmp_path: Path) -> None:
    with client_of(make_app(tmp_path)) as client:
        for number in range(20):
            assert client.request(f"MADE{number}", "/v1/health").status_code == 405
        text = client.get("/v1/metrics").text
    assert "MADE" not in text
    assert 'roam_http_requests_total{method="(none)",route="/v1/health",status="405"} 20.0' in text


@pytest.mark.integration
def test_a_failure_is_told_by_its_number_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(ScriptedRelations):
        def predict_proba(self, pairs: Any) -> Any:
            raise RuntimeError("/srv/secret/path")

    with client_of(make_app(tmp_path, Failing())) as client:
        reply = client.post("/v1/relations", json={"pairs": [{"old": DOG, "new": LYON}]})
    assert reply.status_code == 500
    assert "secret" not in reply.text
    assert reply.json()["request_id"] == reply.headers["x-request-id"]
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert reply.json()["request_id"] in caplog.text


@pytest.mark.integration
def test_a_model_server_out_of_reach_is_no_fault_of_the_request(tmp_path: Path) -> None:
    class Gone(ScriptedRelations):
        def predict_proba(self, pairs: Any) -> Any:
            raise LLMError("http://model.internal:8000/v1 does not answer")

    with client_of(make_app(tmp_path, Gone())) as client:
        reply = client.post("/v1/relations", json={"pairs": [{"old": DOG, "new": LYON}]})
    assert (reply.status_code, reply.json()["error"]) == (503, "LLMError")


@pytest.mark.integration
def test_what_the_operator_broke_is_not_told_to_callers(
    client: TestClient, keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys.write_text("{", encoding="utf-8")
    reply = client.get("/v1/users", headers={"Authorization": "Bearer roam_x"})
    assert (reply.status_code, reply.json()["error"]) == (503, "ConfigError")
    assert str(keys) not in reply.text
    assert str(keys) in caplog.text


@pytest.mark.integration
def test_a_flood_of_bad_keys_is_slowed_down_and_slows_no_good_one(keys: Path, tmp_path: Path) -> None:
    good = add_key(keys, "app", tenant=None, users=["maya"])
    with client_of(make_app(tmp_path, keys=keys, rate=0.01, burst=3)) as client:
        codes = [client.get("/v1/users", headers={"Authorization": f"Bearer roam_{n}"}).status_code for n in range(5)]
        assert codes == [401, 401, 401, 429, 429]
        assert client.get("/v1/users", headers={"Authorization": f"Bearer {good}"}).status_code == 200


@pytest.mark.unit
def test_pairs_that_wait_are_limited_but_a_request_alone_is_not() -> None:
    waiting = Waiting(4)
    with waiting.admit(5):
        with pytest.raises(BusyError, match="5 pairs"), waiting.admit(1):
            pass
        assert waiting.pairs == 5
    with waiting.admit(3), waiting.admit(1):
        assert waiting.pairs == 4
    assert waiting.pairs == 0


@pytest.mark.integration
def test_a_flood_of_pairs_is_refused(tmp_path: Path) -> None:
    entered, go = threading.Event(), threading.Event()

    class Slow(ScriptedRelations):
        def predict_proba(self, pairs: Any) -> Any:
            entered.set()
            assert go.wait(10)
            return super().predict_proba(pairs)

    body = {"pairs": [{"old": DOG, "new": LYON}] * 3}
    with client_of(make_app(tmp_path, Slow(), max_waiting=4)) as client, ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.post, "/v1/relations", json=body)
        assert entered.wait(10)
        reply = client.post("/v1/relations", json=body)
        go.set()
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
        assert first.result(10).status_code == 200


@pytest.mark.unit
@pytest.mark.parametrize("wrong", [{"grace": float("inf")}, {"grace": float("nan")}, {"rate": float("inf")}])
def test_endless_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="above 0"):
        Settings(**wrong)  # type: ignore[arg-type]


@pytest.mark.unit
def test_a_name_that_no_host_can_have_is_one_line(keys: Path) -> None:
    with pytest.raises(ConfigError, match="cannot listen"):
        listen(Settings(host="a" * 70, port=0, keys=keys))


@pytest.mark.unit
def test_passwords_are_shown_in_no_form() -> None:
    for url in ("postgresql://maya:secret@db/app", "postgresql://maya@db/app?password=secret&sslmode=require"):
        assert "secret" not in Settings(db=url).place
        assert "maya@db/app" in Settings(db=url).place


@pytest.mark.unit
def test_a_store_that_fails_to_close_keeps_no_other_open() -> None:
    closed: list[str] = []

    class Store:
        def __init__(self, name: str) -> None:
            self.name = name

        async def close(self) -> None:
            await asyncio.sleep(0 if self.name == "bad" else 0.01)
            if self.name == "bad":
                raise StoreError("the disk is gone")
            closed.append(self.name)

    stores = Stores(lambda path: pytest.fail("nothing is opened"), Settings(), Metrics())
    stores._stores = {name: Store(name) for name in ("bad", "good")}  # type: ignore[misc]
    with pytest.raises(StoreError, match="gone"):
        asyncio.run(stores.close())
    assert closed == ["good"]
