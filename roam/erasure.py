"""Erasure for real: rows, views, vectors, log, judgements, and the pages that held them (DESIGN 4.7)."""

from __future__ import annotations

from collections.abc import Callable

from roam.events import EventKind, Receipt
from roam.records import Observation
from roam.revision import Reviser, make_event
from roam.state import difference, fold, open_reviews
from roam.storage import Store


def erase(reviser: Reviser, observation: Observation) -> Receipt:
    """Remove every trace of one observation; what depended on it is rebuilt from what is left."""
    store, user, erased = reviser.store, observation.user, observation.id

    def attempt() -> tuple[int, Callable[[], str]]:
        log = reviser.read(user)
        rewritten = reviser.refolder(log).rewrite(log.events, erased)
        left = {id: entry for id, entry in log.observations.items() if id != erased}
        after = fold(rewritten, left)
        change = difference(log.state(), after)
        vectors = reviser.vectors_for(change, left)

        def write() -> str:
            reviser.write_change(user, change, after, log.observations, vectors)
            store.replace_log(user, log.events, rewritten)
            store.set_reviews(user, open_reviews(rewritten).values())
            store.delete_observation(observation)
            receipt = make_event(user, EventKind.ERASE, detail="1 observation")
            store.append_event(receipt)
            return receipt.id

        return log.version, write

    event_id = reviser.commit(user, attempt)
    return Receipt(event_id, 1, store.db.scrub(thorough=False))


def erase_user(store: Store, user: str) -> Receipt:
    """Remove every row of one user; the receipt does not name the user."""
    with store.transaction(user):
        count = store.delete_user(user)
        receipt = make_event("", EventKind.ERASE, detail=f"{count} observations")
        store.append_event(receipt)
    return Receipt(receipt.id, count, store.db.scrub(thorough=False))
