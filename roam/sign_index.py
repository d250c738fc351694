"""Which vectors are worth comparing: one bit a dimension, held in memory, for users with very many Primaries.

A search reads every vector of one user and one kind, which is exact and fast up to some thousands. Beyond that it would
grow with the user. The sign bits of 50,000 vectors of 384 dimensions are 2.4 MB, which a processor compares within
milliseconds; the nearest by Hamming distance are then ranked by the database on the true vectors. The bits are derived
from the stored vectors when a large user is first searched, and follow the user's log: each event names the
observations whose vectors may have changed, whoever wrote it. So nothing is written beside the store, and nothing can
be left behind by a crash.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roam.events import Event, EventKind

if TYPE_CHECKING:
    from roam.storage import Store

EXACT_UP_TO = 4_096
"""Primaries of one user up to which every vector is compared."""
LEAST_CANDIDATES = 256
"""How many of the nearest by sign bits are ranked on their vectors, or as many as results are wanted.

Of 12,000 facts in MiniLM's space, 256 candidates held 99.95 % of the 10 nearest and 99.5 % of the 25 nearest.
"""
MOST_HELD = 4_000_000
"""Vectors whose bits are held at most, of all users; those used longest ago go first (224 MB at 384 dimensions)."""
_MOST_EVENTS = 512  # a log that has grown by more is cheaper to read as vectors
_WORD = 8  # bytes


class Bits:
    """Sign bits of one user's vectors of one kind, in no order; `sequences` says whose they are."""

    def __init__(self, sequences: NDArray[np.int64], bits: NDArray[np.uint8]) -> None:
        """`bits`: shape (n, bytes)."""
        # One row a word, so that each step of a comparison runs through memory in order.
        self.sequences, self._words = sequences, _as_words(bits)
        self.count = len(sequences)

    def put(self, sequence: int, bits: NDArray[np.uint8]) -> None:
        """Add or replace one vector's bits, shape (bytes,)."""
        place = self._place(sequence)
        if place is None:
            if self.count == len(self.sequences):
                room = max(1024, self.count // 8)
                self.sequences = np.pad(self.sequences, (0, room))
                self._words = np.pad(self._words, ((0, 0), (0, room)))
            place = self.count
            self.count += 1
        self.sequences[place], self._words[:, place] = sequence, _as_words(bits[None])[:, 0]

    def drop(self, sequence: int) -> None:
        """Remove one vector's bits, if they are here."""
        place = self._place(sequence)
        if place is not None:
            self.count -= 1
            self.sequences[place], self._words[:, place] = self.sequences[self.count], self._words[:, self.count]

    def nearest(self, bits: NDArray[np.uint8], wanted: int) -> list[int]:
        """Return the sequences of the `wanted` vectors that share the most signs with `bits`, in no order."""
        if wanted >= self.count:
            return [int(sequence) for sequence in self.sequences[: self.count]]
        distances = np.zeros(self.count, dtype=np.uint16)
        for row, word in zip(self._words[:, : self.count], _as_words(bits[None])[:, 0], strict=True):
            distances += np.bitwise_count(row ^ word)
        # Distances are small whole numbers: counting them is faster than sorting.
        last = int(np.searchsorted(np.cumsum(np.bincount(distances)), wanted))
        nearer = np.flatnonzero(distances < last)
        as_near = np.flatnonzero(distances == last)[: wanted - len(nearer)]
        found: list[int] = self.sequences[np.concatenate([nearer, as_near])].tolist()
        return found

    def _place(self, sequence: int) -> int | None:
        found = np.flatnonzero(self.sequences[: self.count] == sequence)
        return int(found[0]) if len(found) else None


def _as_words(bits: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return rows of bytes, shape (n, bytes), as columns of 64-bit words filled up with zeros."""
    filled = np.zeros((len(bits), bits.shape[1] + -bits.shape[1] % _WORD), dtype=np.uint8)
    filled[:, : bits.shape[1]] = bits
    return np.ascontiguousarray(filled.view(np.uint64).T)


class SignIndex:
    """Candidates of a search, for users with more than `exact_up_to` Primaries."""

    def __init__(self, store: Store, *, exact_up_to: int = EXACT_UP_TO, most_held: int = MOST_HELD) -> None:
        self._store, self.exact_up_to, self._most_held = store, exact_up_to, most_held
        self._held: OrderedDict[str, tuple[int, dict[str, Bits]]] = OrderedDict()  # by user: version, bits by kind

    def forget(self, user: str | None = None) -> None:
        """Drop what is held of one user, or of all: their vectors changed without an event."""
        if user is None:
            self._held.clear()
        else:
            self._held.pop(user, None)

    def candidates(self, user: str, kind: str, vector: NDArray[np.float32], limit: int) -> list[int] | None:
        """Return sequences among which the `limit` nearest vectors of a kind are; None when all must be compared.

        Every Primary has one vector of the kinds "atomic" and "view", so the kinds are equally many.
        """
        if len(vector) % 8:
            return None  # no whole bytes
        bits = self._current(user).get(kind)
        if bits is None:
            if _count_primaries(self._store, user, self.exact_up_to + 1) <= self.exact_up_to:
                return None
            bits = self._load(user, kind)
        return bits.nearest(np.packbits(vector > 0, bitorder="little"), max(LEAST_CANDIDATES, limit))

    def _current(self, user: str) -> dict[str, Bits]:
        """Return what is held of a user, brought up to the present version of the log."""
        if user not in self._held:
            return {}
        self._held.move_to_end(user)
        known, kinds = self._held[user]
        version = self._store.version(user)
        if version == known:
            return kinds
        events = self._store.events(user, after=known, limit=_MOST_EVENTS + 1) if version > known else []
        touched = _touched(events) if 0 < len(events) <= _MOST_EVENTS else None
        if touched is None or min(bits.count for bits in kinds.values()) < self.exact_up_to // 2:
            self.forget(user)
            return {}
        self._renew(user, kinds, touched)
        self._held[user] = (version, kinds)
        return kinds

    def _renew(self, user: str, kinds: dict[str, Bits], ids: Iterable[str]) -> None:
        """Read the bits of some observations' vectors again."""
        sequences = _sequences_of(self._store, ids)
        for kind, bits in kinds.items():
            fresh = dict(_sign_rows(self._store, user, kind, sequences))
            packed = self._store.db.unpack_signs(list(fresh.values())) if fresh else ()
            for sequence in sequences:
                if sequence not in fresh:
                    bits.drop(sequence)
            for sequence, row in zip(fresh, packed, strict=True):
                bits.put(sequence, row)

    def _load(self, user: str, kind: str) -> Bits:
        rows = _sign_rows(self._store, user, kind)
        sequences = np.array([sequence for sequence, _ in rows], dtype=np.int64)
        bits = Bits(sequences, self._store.db.unpack_signs([signs for _, signs in rows]))
        version = self._store.version(user)
        kinds = self._held[user][1] if user in self._held else {}
        self._held[user] = (version, {**kinds, kind: bits})
        while len(self._held) > 1 and self._size() > self._most_held:
            self._held.popitem(last=False)
        return bits

    def _size(self) -> int:
        return sum(bits.count for _, kinds in self._held.values() for bits in kinds.values())


def _touched(events: list[Event]) -> set[str] | None:
    """Return the observations whose vectors some events may have changed; None when the events do not tell."""
    ids: set[str] = set()
    for event in events:
        if event.kind is EventKind.ERASE:
            return None
        if event.decision is not None:
            ids.update((event.decision.observation_id, event.decision.primary_id, *event.decision.demoted_ids))
        if event.change is not None:
            ids.update(event.change.assigned)
            ids.update(event.change.views)
    return ids


def _count_primaries(store: Store, user: str, most: int) -> int:
    """Return how many Primaries a user has, counted up to `most`."""
    sql = "SELECT count(*) FROM (SELECT 1 FROM state WHERE user = ? AND view IS NOT NULL LIMIT ?) AS counted"
    return int(store.rows(sql, (user, most))[0][0])


def _sequences_of(store: Store, ids: Iterable[str]) -> list[int]:
    """Return the sequences of these observations."""
    # By id alone: with the user named as well, SQLite would go through all of the user's rows.
    sql = f"SELECT sequence FROM observations WHERE id {store.db.among}"
    return [int(row[0]) for row in store.rows(sql, (store.db.list_to_sql(list(ids)),))]


def _sign_rows(store: Store, user: str, kind: str, sequences: Sequence[int] | None = None) -> list[tuple[int, Any]]:
    """Return (sequence, sign bits as the database has them) of one user's vectors of a kind, or some of them."""
    sql, bindings = f"SELECT sequence, {store.db.signs} FROM vectors WHERE user = ? AND kind = ?", (user, kind)
    if sequences is None:
        return [(int(row[0]), row[1]) for row in store.rows(sql, bindings)]
    sql += f" AND sequence {store.db.among}"
    return [(int(row[0]), row[1]) for row in store.rows(sql, (*bindings, store.db.list_to_sql(sequences)))]
