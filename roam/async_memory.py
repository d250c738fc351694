"""The store for programs that run on asyncio: the same methods, awaited."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from roam.memory import Memory

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _awaited(
    method: Callable[Concatenate[Memory, _P], _T],
) -> Callable[Concatenate[AsyncMemory, _P], Coroutine[Any, Any, _T]]:
    async def call(self: AsyncMemory, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await self._run(functools.partial(method, self.memory, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


class AsyncMemory:
    """A `Memory` whose methods are awaited; the event loop is never held up by a model or by the disk.

    Calls run one after another, in the order in which they were made, on a thread of the store's own: `asyncio.gather`
    of adds gives the state of that order. Cancelling an await does not stop a call that has begun: a write is then
    made whole or not at all, as ever.

        async with await AsyncMemory.open("memory.db") as memory:
            await memory.add("The user moved to Berlin.", user="maya")
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="roam")

    @classmethod
    async def open(cls, path: str | Path, **settings: Any) -> Self:
        """Open or create a store; takes what `Memory.open` takes."""
        return cls(await asyncio.to_thread(Memory.open, path, **settings))

    async def close(self) -> None:
        """Wait for the calls that were made, and close the file; a second call does nothing."""
        await asyncio.to_thread(self._thread.shutdown)
        self.memory.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, call: Callable[[], _T]) -> _T:
        self.memory.check_open()
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._thread, functools.partial(context.run, call))

    add = _awaited(Memory.add)
    add_many = _awaited(Memory.add_many)
    search = _awaited(Memory.search)
    primaries = _awaited(Memory.primaries)
    evidence = _awaited(Memory.evidence)
    get = _awaited(Memory.get)
    users = _awaited(Memory.users)
    page_primaries = _awaited(Memory.page_primaries)
    page_evidence = _awaited(Memory.page_evidence)
    page_observations = _awaited(Memory.page_observations)
    page_history = _awaited(Memory.page_history)
    history = _awaited(Memory.history)
    explain = _awaited(Memory.explain)
    as_of = _awaited(Memory.as_of)
    reviews = _awaited(Memory.reviews)
    decide = _awaited(Memory.decide)
    export_pairs = _awaited(Memory.export_pairs)
    retract = _awaited(Memory.retract)
    undo = _awaited(Memory.undo)
    redo = _awaited(Memory.redo)
    erase = _awaited(Memory.erase)
    erase_user = _awaited(Memory.erase_user)
    scrub = _awaited(Memory.scrub)
    replay = _awaited(Memory.replay)
    apply = _awaited(Memory.apply)
    verify = _awaited(Memory.verify)
    export_jsonl = _awaited(Memory.export_jsonl)
    import_jsonl = _awaited(Memory.import_jsonl)
    import_blocks = _awaited(Memory.import_blocks)
