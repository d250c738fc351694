"""Facts of many requests written together: one `add_many` for all that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from roam.async_memory import AsyncMemory
from roam.batching import Lookahead
from roam.errors import RoamError
from roam.records import Decision, Observation
from roam.server.problems import BusyError, StoppingError


@dataclass(slots=True)
class _Job:
    observations: Sequence[Observation]
    decided: asyncio.Future[list[Decision]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class WriteQueue:
    """Takes facts in arrival order and writes all that wait in one batch.

    The state is that of writing them one by one in that order (`Memory.add_many`), and the relation model is asked
    once for many of them. A batch that is refused is written job by job, so that bad input hurts nobody else; the facts
    of it that were stored before the refusal keep their decisions, since every fact has its id already.
    """

    def __init__(
        self, memory: AsyncMemory, *, max_waiting: int, observe: Callable[[int], None] = lambda facts: None
    ) -> None:
        self._memory, self._most, self._observe = memory, max_waiting, observe
        self._jobs: asyncio.Queue[_Job | None] = asyncio.Queue()
        self.waiting = 0
        """Facts that were taken and are not written yet."""
        self._closing = False
        self._worker = asyncio.create_task(self._work())

    async def add(self, observations: Sequence[Observation]) -> list[Decision]:
        """Write facts, and return the decision on each once it is on the disk.

        Raises:
            BusyError: too many facts wait already; nothing of this call is stored.
            StoppingError: the server stops.
            RoamError: what `Memory.add_many` raises.
        """
        if self._closing:
            raise StoppingError
        if self.waiting + len(observations) > self._most:
            raise BusyError(self.waiting)
        job = _Job(observations)
        self.waiting += len(observations)
        self._jobs.put_nowait(job)
        # A client that goes away does not take its facts back: the write runs to its end.
        return await asyncio.shield(job.decided)

    async def close(self) -> None:
        """Write what waits, then stop."""
        if not self._closing:
            self._closing = True
            self._jobs.put_nowait(None)
        await self._worker

    async def _work(self) -> None:
        while (job := await self._jobs.get()) is not None:
            batch, facts, last = [job], len(job.observations), False
            while facts < Lookahead.WINDOW and not self._jobs.empty():
                following = self._jobs.get_nowait()
                if following is None:  # nothing comes after it
                    last = True
                    break
                batch.append(following)
                facts += len(following.observations)
            self._observe(facts)
            await self._write(batch)
            self.waiting -= facts
            if last:
                return

    async def _write(self, batch: list[_Job]) -> None:
        facts = [observation for job in batch for observation in job.observations]
        writing = asyncio.ensure_future(self._memory.add_many(facts))
        await asyncio.wait([writing])
        error = writing.exception()
        if error is None:
            decisions = iter(writing.result())
            for job in batch:
                _settle(job, [next(decisions) for _ in job.observations])
        elif isinstance(error, RoamError) and len(batch) > 1:
            for job in batch:
                await self._write([job])
        else:
            for job in batch:
                _settle(job, error)


def _settle(job: _Job, outcome: list[Decision] | BaseException) -> None:
    if job.decided.done():
        return
    if isinstance(outcome, BaseException):
        job.decided.set_exception(outcome)
    else:
        job.decided.set_result(outcome)
