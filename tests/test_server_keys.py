"""API keys: hashed, bound to users and tenants, revoked at once; tenants never meet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from roam.cli import main
from roam.errors import ConfigError, InputError
from roam.server.keys import KeyRing, add_key, revoke_key
from tests.back_ends import ROLE, Schemas
from tests.server_app import DOG, GHENT, LYON, client_of, make_app


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def call(client: TestClient, key: str | None, method: str, path: str, **more: Any) -> Any:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return client.request(method, f"/v1/{path}", headers=headers, **more)


def store(client: TestClient, key: str, text: str, user: str, **more: Any) -> int:
    status: int = call(client, key, "POST", "memories", json={"text": text, "user": user, **more}).status_code
    return status


@pytest.mark.unit
def test_only_a_hash_is_kept_and_the_file_is_private(keys: Path) -> None:
    secret = add_key(keys, "app", tenant=None, users=["maya"])
    assert secret.startswith("roam_")
    assert len(secret) > 40
    assert secret not in keys.read_text(encoding="utf-8")
    assert keys.stat().st_mode & 0o777 == 0o600
    ring = KeyRing(keys)
    found = ring.find(secret)
    assert found is not None
    assert (found.name, found.may_touch("maya"), found.may_touch("noor")) == ("app", True, False)
    assert ring.find(secret[:-1]) is None
    assert ring.find("\ud800") is None


@pytest.mark.unit
def test_bad_key_files_and_names_are_refused(keys: Path) -> None:
    with pytest.raises(ConfigError, match="make it"):
        KeyRing(keys)
    for content in (
        "",
        "[]",
        '{"version": 2, "keys": []}',
        '{"version": 1, "keys": [{}]}',
        '{"version": 1, "keys": []}',
    ):
        keys.write_text(content, encoding="utf-8")
        with pytest.raises(ConfigError):
            KeyRing(keys)
    keys.unlink()
    add_key(keys, "app", tenant=None, users=None)
    with pytest.raises(InputError, match="exists"):
        add_key(keys, "app", tenant=None, users=None)
    with pytest.raises(ConfigError):
        add_key(keys, "other", tenant="../etc", users=None)
    with pytest.raises(InputError, match="no key"):
        revoke_key(keys, "nobody")


@pytest.mark.integration
def test_without_a_valid_key_nothing_is_answered_but_health(keys: Path, tmp_path: Path) -> None:
    add_key(keys, "app", tenant=None, users=["maya"])
    with client_of(make_app(tmp_path, keys=keys)) as client:
        for key in (None, "roam_wrong", ""):
            for method, path in (("GET", "users"), ("GET", "memories?user=maya"), ("GET", "metrics")):
                reply = call(client, key, method, path)
                assert (reply.status_code, reply.json()["error"]) == (401, "UnauthenticatedError")
                assert reply.headers["www-authenticate"] == "Bearer"
        assert call(client, None, "GET", "health").json()["keys"] is True
        assert client.get("/v1/users", headers={"Authorization": "Basic bWF5YTpwdw=="}).status_code == 401
        assert "securitySchemes" in client.get("/openapi.json").json()["components"]


@pytest.mark.integration
def test_a_key_touches_its_own_users_only(keys: Path, tmp_path: Path) -> None:
    maya, noor = (add_key(keys, user, tenant=None, users=[user]) for user in ("maya", "noor"))
    both = add_key(keys, "all", tenant=None, users=None, operator=True)
    with client_of(make_app(tmp_path, keys=keys)) as client:
        assert store(client, maya, LYON, "maya", id="lyon") == 201
        assert store(client, maya, DOG, "noor") == 403
        assert store(client, noor, DOG, "noor", id="dog") == 201
        batch = {"observations": [{"text": DOG, "user": "maya"}, {"text": DOG, "user": "noor"}]}
        assert call(client, maya, "POST", "memories/batch", json=batch).status_code == 403
        for path in ("memories", "reviews", "history"):
            assert call(client, noor, "GET", path, params={"user": "maya"}).status_code == 403
        for path in ("memory", "explain", "evidence"):
            assert call(client, noor, "GET", path, params={"user": "maya", "id": "lyon"}).status_code == 403
            assert call(client, noor, "GET", path, params={"user": "noor", "id": "lyon"}).status_code == 404
        for path, body in (
            ("retract", {"id": "lyon"}),
            ("erase", {"id": "lyon"}),
            ("erase-user", {"confirm": "maya"}),
            ("search", {"query": "where"}),
            ("undo", {"event_id": "x"}),
            ("reviews", {"new_id": "a", "old_id": "b", "relation": "IND"}),
        ):
            assert call(client, noor, "POST", path, json={"user": "maya", **body}).status_code == 403
        assert call(client, noor, "GET", "users").json() == {"users": ["noor"]}
        assert call(client, both, "GET", "users").json() == {"users": ["maya", "noor"]}
        assert call(client, noor, "GET", "metrics").status_code == 403
        assert call(client, both, "GET", "metrics").status_code == 200
        assert call(client, maya, "GET", "memory", params={"user": "maya", "id": "lyon"}).json()["role"] == "primary"


@pytest.mark.integration
def test_tenants_have_stores_of_their_own(keys: Path, tmp_path: Path) -> None:
    acme, zeta = (add_key(keys, name, tenant=name, users=None) for name in ("acme", "zeta"))
    with client_of(make_app(tmp_path, keys=keys, db=str(tmp_path / "{tenant}.db"))) as client:
        assert store(client, acme, LYON, "maya", id="m1") == 201
        assert store(client, zeta, DOG, "maya", id="m1") == 201  # the same user and id: no clash, nothing to be seen
        for key, text in ((acme, LYON), (zeta, DOG)):
            views = call(client, key, "GET", "memories", params={"user": "maya"}).json()["items"]
            assert [view["text"] for view in views] == [text]
        assert call(client, acme, "POST", "erase-user", json={"user": "maya", "confirm": "maya"}).status_code == 200
        assert call(client, zeta, "GET", "users").json() == {"users": ["maya"]}
    assert sorted(path.name for path in tmp_path.glob("*.db")) == ["acme.db", "zeta.db"]


@pytest.mark.integration
def test_a_tenant_without_a_store_is_refused_at_the_start(keys: Path, tmp_path: Path) -> None:
    add_key(keys, "acme", tenant="acme", users=None)
    with pytest.raises(ConfigError, match="tenant"):
        make_app(tmp_path, keys=keys)


@pytest.mark.integration
def test_a_revoked_key_stops_working_at_once(keys: Path, tmp_path: Path) -> None:
    old, other = (add_key(keys, name, tenant=None, users=["maya"]) for name in ("old", "other"))
    with client_of(make_app(tmp_path, keys=keys)) as client:
        assert call(client, old, "GET", "users").status_code == 200
        revoke_key(keys, "old")
        assert call(client, old, "GET", "users").status_code == 401
        new = add_key(keys, "new", tenant=None, users=["maya"])
        assert call(client, new, "GET", "users").status_code == 200
        assert call(client, other, "GET", "users").status_code == 200


@pytest.mark.integration
def test_each_key_has_its_own_rate(keys: Path, tmp_path: Path) -> None:
    one, other = (add_key(keys, name, tenant=None, users=["maya"]) for name in ("one", "other"))
    with client_of(make_app(tmp_path, keys=keys, rate=0.1, burst=2)) as client:
        assert [call(client, one, "GET", "users").status_code for _ in range(3)] == [200, 200, 429]
        assert call(client, other, "GET", "users").status_code == 200


@pytest.mark.integration
def test_keys_from_the_command_line(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key", "app", "--keys", str(keys), "--user", "maya", "--user", "noor"]) == 0
    secret = capsys.readouterr().out.strip()
    assert KeyRing(keys).find(secret) is not None
    assert main(["key", "--list", "--keys", str(keys), "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert (row["name"], row["users"]) == ("app", ["maya", "noor"])
    assert "sha256" not in row
    assert main(["key", "--list", "--keys", str(keys.with_name("none.json"))]) == 2
    assert "make it with `roam key NAME --keys FILE`" in capsys.readouterr().err
    for wrong in (["app", "--user", "x"], ["new"], ["new", "--user", "x", "--all-users"], [], ["nobody", "--revoke"]):
        assert main(["key", *wrong, "--keys", str(keys)]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert main(["key", "app", "--revoke", "--keys", str(keys)]) == 0
    assert json.loads(keys.read_text(encoding="utf-8"))["keys"] == []


@pytest.mark.integration
def test_tenants_in_schemas_of_one_database(keys: Path, tmp_path: Path, postgres: Schemas) -> None:
    acme, zeta = (add_key(keys, name, tenant=name, users=None) for name in ("acme", "zeta"))
    for name in ("acme", "zeta"):
        postgres.administer(f"CREATE SCHEMA tenant_{name} AUTHORIZATION {ROLE}")
    try:
        with client_of(
            make_app(tmp_path, keys=keys, db=postgres.url("tenant_NAME").replace("NAME", "{tenant}"))
        ) as client:
            assert store(client, acme, LYON, "maya", id="m1") == 201
            assert store(client, acme, GHENT, "maya", id="m2") == 201
            assert store(client, zeta, DOG, "maya", id="m1") == 201
            for key, count in ((acme, 2), (zeta, 1)):
                [view] = call(client, key, "GET", "memories", params={"user": "maya"}).json()["items"]
                assert len(view["members"]) == count
            erased = call(client, acme, "POST", "erase-user", json={"user": "maya", "confirm": "maya"})
            assert erased.json()["observations"] == 2
            assert call(client, zeta, "GET", "users").json() == {"users": ["maya"]}
    finally:
        postgres.administer("DROP SCHEMA tenant_acme, tenant_zeta CASCADE")
