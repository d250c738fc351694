"""The part of `Memory` that reads by id, lists everything page by page, and moves whole stores as JSONL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Generic, TypeVar

from roam import transfer
from roam.access import Access
from roam.errors import InputError, NotFoundError
from roam.events import Event, ImportReport, Record
from roam.policy import Stamp, in_time_order
from roam.records import Observation, Role, View
from roam.state import make_view
from roam.transfer import Block
from roam.validation import check_count, clean_user
from roam.writing import write_lines

PAGE = 100
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Page(Generic[_T]):
    """Some items of a list in order; `next` is the cursor of the page after this one, None on the last page."""

    items: tuple[_T, ...]
    next: str | None


class Listing(Access):
    """Methods of `Memory` that read by id or go through everything.

    A cursor says after which item a page begins. Facts that come, go or change their role between two pages neither
    shift nor repeat items: what is there all the while is listed exactly once.
    """

    def primaries(self, *, user: str) -> list[View]:
        """Return all views of one user in arrival order of their Primaries."""
        owner = clean_user(user)
        with self._reading(owner) as store:
            members = store.members_of(owner)
            return [make_view(members[id], id, text) for id, text in store.views(owner).items()]

    def evidence(self, id: str, *, user: str | None = None) -> list[Observation]:
        """Return the Evidence of a Primary in time order; none for an id that is Evidence itself or retracted.

        With `user` given, an id of another user is not found.
        """
        with self._reading(user) as store:
            observation = store.observation(id, user)
            members = store.members(observation.user, id)
            order = in_time_order([Stamp(entry.id, entry.sequence, entry.observed_at) for entry in members])
            by_id = {entry.id: entry for entry in members}
            return [by_id[stamp.id] for stamp in order if stamp.id != id]

    def get(self, id: str, *, user: str | None = None) -> Record:
        """Return one observation with its role and its Primary; both are None once it is retracted."""
        with self._reading(user) as store:
            observation = store.observation(id, user)
            placed = store.find_state(id)
            return make_record(observation, None if placed is None else placed[0], store.recorded_at(id))

    def users(self) -> list[str]:
        """Return every user with at least one observation or event."""
        with self._reading() as store:
            return store.users()

    def page_primaries(self, *, user: str, limit: int = PAGE, cursor: str | None = None) -> Page[View]:
        """Return up to `limit` views of one user in arrival order of their Primaries."""
        owner, start = clean_user(user), _start(cursor, "primaries")
        check_count(limit, "limit")
        with self._reading(owner) as store:
            rows = store.primaries_after(owner, start, limit + 1)
            members = store.members_of(owner, [row[0].id for row in rows])
            return _page("primaries", rows, limit, lambda row: make_view(members[row[0].id], row[0].id, row[1]))

    def page_evidence(
        self, id: str, *, user: str | None = None, limit: int = PAGE, cursor: str | None = None
    ) -> Page[Observation]:
        """Return up to `limit` observations that are Evidence of one Primary, in arrival order."""
        start = _start(cursor, "evidence")
        check_count(limit, "limit")
        with self._reading(user) as store:
            primary = store.observation(id, user)
            members = store.members(primary.user, id, after=start, limit=limit + 2)
            rows = [(member, None) for member in members if member.id != id]
            return _page("evidence", rows, limit, lambda row: row[0])

    def page_observations(self, *, user: str, limit: int = PAGE, cursor: str | None = None) -> Page[Record]:
        """Return up to `limit` observations of one user in arrival order, each with its role, retracted ones too."""
        owner, start = clean_user(user), _start(cursor, "observations")
        check_count(limit, "limit")
        with self._reading(owner) as store:
            rows = [(entry, None) for entry in store.observations(owner, after=start, limit=limit + 1)]

            def record(row: tuple[Observation, None]) -> Record:
                placed = store.find_state(row[0].id)
                return make_record(row[0], None if placed is None else placed[0], store.recorded_at(row[0].id))

            return _page("observations", rows, limit, record)

    def page_history(self, *, user: str, limit: int = PAGE, cursor: str | None = None) -> Page[Event]:
        """Return up to `limit` events of one user in the order in which they were recorded."""
        owner, start = clean_user(user), _start(cursor, "history")
        check_count(limit, "limit")
        with self._reading(owner) as store:
            rows = [(event, None) for event in store.events(owner, after=start, limit=limit + 1)]
            return _page("history", rows, limit, lambda row: row[0])

    def export_jsonl(self, path: str | Path, *, user: str | None = None) -> int:
        """Write the whole store, or one user's part, as JSONL ("-": standard output); return the number of lines.

        The file holds observations, events (decisions, verdicts, retractions, ...) and judgements, but no vectors: it
        can be imported into a store with another embedder. The same content gives the same bytes. `NotFoundError` for
        a user of whom nothing is stored.
        """
        with self._reading(user) as store:
            if user is not None and not (store.observations(user, limit=1) or store.events(user, limit=1)):
                raise NotFoundError(f"nothing is stored of user {user!r}: user ids are matched exactly, check its case")
            users = store.users() if user is None else [clean_user(user)]
            return write_lines(path, transfer.export_lines(store, users, receipts=user is None))

    def import_jsonl(self, path: str | Path) -> ImportReport:
        """Take in what `export_jsonl` wrote: the same log, hence the same state, without a pass of the relation model.

        All of it is written in one transaction or nothing. A user who is there with the same content already is left
        alone, so that a repeated import changes nothing.

        Raises:
            DataError: a file that cannot be read, was cut off or altered; it names the first bad lines and counts all.
            InputError: a user, or an id, that this store holds with other content.
        """
        return self.import_blocks(transfer.read_export(path))

    def import_blocks(self, blocks: Mapping[str, Block]) -> ImportReport:
        """Take in what `roam.transfer.read_export` has read and checked; see `import_jsonl`."""
        with self._writing() as store:
            return transfer.take_in(store, self._reviser, blocks)


def make_record(observation: Observation, primary_id: str | None, recorded_at: datetime) -> Record:
    """Return an observation with its role and its Primary."""
    role = None if primary_id is None else Role.PRIMARY if primary_id == observation.id else Role.EVIDENCE
    return Record(observation, role, primary_id, recorded_at)


_Item = TypeVar("_Item", Observation, Event)
_Extra = TypeVar("_Extra")


def _page(
    what: str, rows: Sequence[tuple[_Item, _Extra]], limit: int, make: Callable[[tuple[_Item, _Extra]], _T]
) -> Page[_T]:
    shown = rows[:limit]
    more = len(rows) > limit
    return Page(tuple(make(row) for row in shown), f"{what}:{shown[-1][0].sequence}" if more else None)


def _start(cursor: str | None, what: str) -> int:
    """Return the sequence after which a page begins."""
    if cursor is None:
        return 0
    name, _, number = cursor.partition(":") if isinstance(cursor, str) else ("", "", "")
    if name != what or not number.isascii() or not number.isdigit() or len(number) > 18:
        raise InputError(f"cursor is {cursor!r:.80}: give the `next` of an earlier page of the same list, or None")
    return int(number)
