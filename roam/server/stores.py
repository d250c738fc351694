"""The open stores of a server, one a tenant: a writer with its queue, and a reader beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from roam.async_memory import AsyncMemory
from roam.judging import Stats
from roam.memory import Memory
from roam.server.metrics import Metrics
from roam.server.problems import StoppingError
from roam.server.settings import Settings
from roam.server.writes import WriteQueue

OpenMemory = Callable[[str], Memory]
"""Opens the store at a path or URL."""


@dataclass(frozen=True, slots=True)
class OpenStore:
    """One store. Reads have a connection and a thread of their own, so that they never wait for a model pass."""

    writer: AsyncMemory
    reader: AsyncMemory
    queue: WriteQueue

    async def close(self) -> None:
        """Write what waits, then close both connections."""
        try:
            await self.queue.close()
        finally:
            try:
                await self.reader.close()
            finally:
                await self.writer.close()


class Stores:
    """Opens each store at its first request and closes all of them at the end."""

    def __init__(self, open_memory: OpenMemory, settings: Settings, metrics: Metrics) -> None:
        self._open_memory, self._settings, self._metrics = open_memory, settings, metrics
        self._stores: dict[str, OpenStore] = {}
        self._opening = asyncio.Lock()
        self._closed = False

    async def get(self, tenant: str | None) -> OpenStore:
        """Return a tenant's store, opening it at the first call."""
        path = self._settings.store_of(tenant)
        if path not in self._stores:
            async with self._opening:
                if self._closed:
                    raise StoppingError
                if path not in self._stores:
                    self._stores[path] = await self._open(path)
        return self._stores[path]

    async def _open(self, path: str) -> OpenStore:
        writer = AsyncMemory(await asyncio.to_thread(self._open_memory, path))
        # A store in memory is one connection's own: nobody else could read it.
        reader = writer if path == ":memory:" else AsyncMemory(await asyncio.to_thread(self._open_memory, path))
        observe = self._metrics.batch.observe
        return OpenStore(writer, reader, WriteQueue(writer, max_waiting=self._settings.max_waiting, observe=observe))

    def stats(self) -> Iterator[Stats]:
        """Yield what each writer has counted."""
        return (store.writer.memory.stats for store in list(self._stores.values()))

    def waiting(self) -> int:
        """Return how many facts wait to be written."""
        return sum(store.queue.waiting for store in list(self._stores.values()))

    def __len__(self) -> int:
        return len(self._stores)

    async def close(self) -> None:
        """Write what waits and close every store; one that fails to close keeps no other from it."""
        async with self._opening:
            self._closed = True
            ends = await asyncio.gather(*(store.close() for store in self._stores.values()), return_exceptions=True)
        for end in ends:
            if end is not None:
                raise end
