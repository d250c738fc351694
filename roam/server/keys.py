"""API keys: 256 random bits, of which only a SHA-256 is kept, each bound to a tenant and to the users it may touch.

A key is not a password: nobody can guess or reuse it, so that a plain hash is enough and a look-up costs nothing.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from roam.errors import ConfigError, InputError
from roam.server.settings import check_tenant
from roam.validation import clean_source, clean_user
from roam.writing import write_at_once

PREFIX = "roam_"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Key:
    """Who calls: `users` None means every user of the tenant's store; an operator may also read the metrics."""

    name: str
    tenant: str | None = None
    users: frozenset[str] | None = None
    operator: bool = False

    def may_touch(self, user: str) -> bool:
        """Whether this key may read and write a user's memory."""
        return self.users is None or user in self.users


LOCAL = Key("local", operator=True)
"""Whoever calls a server without keys, which only this machine can reach."""


class KeyRing:
    """The keys of a file, read again whenever it changes: a key that is taken out stops working at once."""

    def __init__(self, path: Path) -> None:
        """Raises `ConfigError` for a file that cannot be read or holds no key."""
        self.path = path
        self._lock = threading.Lock()
        self._stamp = self._stat()
        self._keys = dict(_parse(read_rows(path), path))
        if not self._keys:
            raise ConfigError(f"{path} holds no key: make one with `roam key NAME --keys {path}`")

    def find(self, secret: str) -> Key | None:
        """Return the key with this secret, or None."""
        with self._lock:
            stamp = self._stat()
            if stamp != self._stamp:
                self._keys, self._stamp = dict(_parse(read_rows(self.path), self.path)), stamp
            return self._keys.get(_digest(secret))

    def tenants(self) -> set[str | None]:
        """Every tenant that a key names."""
        return {key.tenant for key in self._keys.values()}

    def _stat(self) -> tuple[int, int]:
        try:
            found = self.path.stat()
        except OSError as error:
            raise ConfigError(
                f"cannot read {self.path}: {error.strerror or error}; make it with `roam key NAME --keys {self.path}`"
            ) from error
        return found.st_mtime_ns, found.st_ino  # a file replaced within one tick is another inode


def add_key(path: Path, name: str, *, tenant: str | None, users: Iterable[str] | None, operator: bool = False) -> str:
    """Make a key, append its hash to a file (mode 0600) and return the secret, which is kept nowhere.

    Raises:
        InputError, ConfigError: a name that is taken, a bad tenant or user, a file that is no key file.
    """
    label = clean_source(name)
    rows = read_rows(path) if path.exists() else []
    if any(row["name"] == label for row in rows):
        raise InputError(f"key {label!r} exists in {path}: revoke it, or choose another name")
    secret = PREFIX + secrets.token_urlsafe(32)
    rows.append({
        "name": label,
        "sha256": _digest(secret),
        "tenant": None if tenant is None else check_tenant(tenant),
        "users": None if users is None else sorted({clean_user(user) for user in users}),
        "operator": operator,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    })  # fmt: skip
    _write(path, rows)
    return secret


def revoke_key(path: Path, name: str) -> None:
    """Take a key out of a file; a running server stops taking it at once."""
    rows = read_rows(path)
    left = [row for row in rows if row["name"] != name]
    if len(left) == len(rows):
        raise InputError(f"no key {name!r} in {path}: it holds {', '.join(row['name'] for row in rows) or 'none'}")
    _write(path, left)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a key file; `ConfigError` for anything else."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror or error}; make it with `roam key NAME --keys FILE`"
        ) from error
    except ValueError as error:
        raise ConfigError(f"{path} is no key file ({error}): make one with `roam key NAME --keys FILE`") from error
    rows = document.get("keys") if isinstance(document, Mapping) and document.get("version") == VERSION else None
    if not isinstance(rows, list):
        raise ConfigError(f"{path} is no key file of version {VERSION}: make one with `roam key NAME --keys FILE`")
    return rows


def _parse(rows: Iterable[Mapping[str, Any]], path: Path) -> Iterable[tuple[str, Key]]:
    for position, row in enumerate(rows):
        try:
            users = row["users"]
            scope = None if users is None else frozenset(clean_user(user) for user in users)
            tenant = None if row["tenant"] is None else check_tenant(row["tenant"])
            yield str(row["sha256"]), Key(str(row["name"]), tenant, scope, row["operator"] is True)
        except (KeyError, TypeError, InputError) as error:
            raise ConfigError(f"{path}, key {position}: {error!r}; correct it or make the key anew") from error


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    if not path.exists():
        path.touch(mode=0o600)
    mode = path.stat().st_mode
    write_at_once(path, json.dumps({"version": VERSION, "keys": rows}, ensure_ascii=False, indent=2) + "\n")
    path.chmod(mode)
