"""What every part of `Memory` works on: the open store, and the lock around it."""

from __future__ import annotations

from contextlib import AbstractContextManager

from roam.interfaces import Embedder
from roam.judging import Judge
from roam.revision import Reviser
from roam.storage import Store


class Access:
    """Base of the mixins of `Memory`."""

    _embedder: Embedder
    _judge: Judge
    _reviser: Reviser

    def _reading(self, *users: str | None) -> AbstractContextManager[Store]:
        """One snapshot of the store for several reads of these users' rows (None: whoever's)."""
        raise NotImplementedError

    def _writing(self, *users: str | None) -> AbstractContextManager[Store]:
        """The store, for this thread alone, and for these users' rows (None: whoever's)."""
        raise NotImplementedError
