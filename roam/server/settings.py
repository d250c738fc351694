"""What a server runs with, and the refusals that need no model: an open door, a tenant without a store."""

from __future__ import annotations

import ipaddress
import math
import re
from dataclasses import dataclass
from pathlib import Path

from roam.errors import ConfigError

TENANT = "{tenant}"
"""Stands in `Settings.db` for the name of the tenant that a key belongs to."""
SHARED = "shared"
"""Takes the place of `{tenant}` for keys that name no tenant."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one server.

    Attributes:
        db: the store: a file, a database URL, or either with `{tenant}` in it for one store a tenant.
        host, port: where to listen; another address than a loopback one is refused without `keys`.
        keys: file of hashed API keys (`roam key`); None serves this machine only.
        rate, burst: requests a second that a key may make on average, and at once; so may an address without a key.
        max_body: bytes of a request's body.
        max_waiting: facts that may wait to be written, for each store, and pairs that may wait to be classified; more
            are refused until some are done.
        grace: seconds that requests in progress have after a signal to stop.
    """

    db: str = "memory.db"
    host: str = "127.0.0.1"
    port: int = 8765
    keys: Path | None = None
    rate: float = 50.0
    burst: int = 200
    max_body: int = 1_048_576
    max_waiting: int = 4_096
    grace: float = 30.0

    def __post_init__(self) -> None:
        for name in ("rate", "burst", "max_body", "max_waiting", "grace"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name)!r}: give a number above 0")
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port is {self.port!r}: give 1 to 65535, or 0 for any free one")
        if self.keys is None and not is_loopback(self.host):
            raise ConfigError(
                f"host is {self.host!r} without API keys, which would open the store to the network: make keys with "
                "`roam key NAME --keys FILE` and pass --keys FILE, or listen on 127.0.0.1"
            )
        if self.keys is None and TENANT in self.db:
            raise ConfigError(f"db is {self.place!r}, but only keys name tenants: pass --keys FILE, or a db without it")

    @property
    def place(self) -> str:
        """`db` as it may be shown: without a password."""
        return without_password(self.db)

    def store_of(self, tenant: str | None) -> str:
        """Path or URL of a tenant's store.

        Raises:
            ConfigError: a tenant while all keys share one store.
        """
        if TENANT in self.db:
            return self.db.replace(TENANT, SHARED if tenant is None else check_tenant(tenant))
        if tenant is not None:
            raise ConfigError(
                f"a key is of tenant {tenant!r}, but db {self.place!r} is one store for all: put {TENANT} into --db"
            )
        return self.db


def check_tenant(name: str) -> str:
    """Return a tenant's name; it becomes part of a path, so it holds nothing but letters, digits, `_` and `-`."""
    if not _NAME.fullmatch(name) or name == SHARED:
        raise ConfigError(
            f"tenant is {name!r:.80}: give 1 to 63 lower-case letters, digits, '_' or '-', other than {SHARED!r}"
        )
    return name


def without_password(db: str) -> str:
    """Return a path or URL as it may be shown."""
    return re.sub(r"(?<=[?&]password=)[^&]*", "...", re.sub(r"(?<=://)([^:@/]*):[^/]*@", r"\1@", db))


def is_loopback(host: str) -> bool:
    """Whether an address can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
