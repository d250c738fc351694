"""The part of `Memory` where a person decides: doubtful pairs, verdicts on them, and verdicts as training pairs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from roam.access import Access
from roam.events import DoubtfulPair, Event
from roam.relations import RELATIONS, Relation, parse_relation
from roam.state import rebase, verdict_events
from roam.storage import Store
from roam.validation import clean_user, text_hash, time_text
from roam.writing import write_lines

SOURCE = "review"


class Reviewing(Access):
    """Methods of `Memory` for review; see DESIGN 4.5."""

    def reviews(self, *, user: str) -> list[DoubtfulPair]:
        """Return the pairs that stayed below a threshold and that nobody has decided, oldest first.

        Pairs with a retracted observation are left out. `decide` settles one.
        """
        owner = clean_user(user)
        with self._reading(owner) as store:
            placed = store.primary_of(owner)
            return [
                DoubtfulPair(decision, relation, probability, store.observation(old), store.observation(new))
                for decision, new, old, relation, probability in store.reviews(owner)
                if new in placed and old in placed
            ]

    def decide(
        self, new_id: str, old_id: str, relation: Relation | str, *, user: str | None = None, key: str | None = None
    ) -> Event:
        """Say what the relation of one observation to an earlier one is; it counts over what the model said.

        The user's log is decided anew with this verdict, without a model pass. Any pair of one user can be decided, in
        doubt or not; the last verdict on a pair counts, and `undo` of the returned event takes it back. Verdicts hold
        when the log is replayed with another manager, and `export_pairs` makes training pairs of them.

        Args:
            relation: IND, EQV, OSN, NSO or CON of the new fact to the old one.
            key: names the event; asking again with the same key and content returns it and changes nothing.

        Raises:
            NotFoundError: an unknown id, or one of another user when `user` is given.
            InputError: a pair that is not (new, earlier one) of one user, or a key that is taken.
        """
        label = parse_relation(relation)
        with self._writing(user) as store:
            return self._reviser.review(store.observation(new_id, user), store.observation(old_id, user), label, key)

    def export_pairs(self, path: str | Path, *, user: str | None = None) -> int:
        """Write the verdicts in effect, of one user or all, as a pair file (DESIGN section 6); return how many.

        A verdict is the label; `probs` are the model's, where it judged the pair; `group` is a hash of the user, so
        that splits never cut a user and the file names none. A file that was there is replaced.
        """
        with self._reading(user) as store:
            users = store.users() if user is None else [clean_user(user)]
            return write_lines(path, (line for owner in users for line in _pairs(store, owner)))


def _pairs(store: Store, user: str) -> Iterator[str]:
    events = store.events(user)
    judged = {
        (event.observation_id, entry.candidate_id): entry.probabilities
        for event in rebase(events).events
        for entry in (() if event.decision is None else event.decision.judgements)
    }
    last = {
        (event.observation_id, event.verdict.old_id): event
        for event in verdict_events(events)
        if event.observation_id is not None and event.verdict is not None
    }
    for (new_id, old_id), event in last.items():
        if event.verdict is None or new_id is None:
            continue
        old, new = store.observation(old_id), store.observation(new_id)
        record: dict[str, object] = {
            "id": event.id,
            "old": old.text,
            "new": new.text,
            "label": event.verdict.relation.value,
            "group": f"user-{text_hash(user)}",
            "source": SOURCE,
            "old_time": time_text(old.observed_at),
            "new_time": time_text(new.observed_at),
        }
        if (new_id, old_id) in judged:
            record["probs"] = {label.value: judged[new_id, old_id][label] for label in RELATIONS}
        yield json.dumps({name: value for name, value in record.items() if value is not None}, ensure_ascii=False)
