"""The tables of a store and their numbered migrations, one text for both back ends.

What the databases call differently stands in braces: `{sequence}` a growing key, `{text}` text ordered by its bytes,
`{integer}` 64 bits, `{real}` a double, `{blob}` bytes, `{vector}` one embedding, `{keyed}` the end of a table that is
kept in the order of its key.
"""

from __future__ import annotations

from collections.abc import Mapping

SCHEMA_VERSION = 2

# Observations and events are the log. `state`, `vectors` and `review` are derived from it. `judgements` holds what the
# relation model said about a pair of texts, so that nothing is classified twice; it is kept per user, so that erasing
# one user never touches another's rows. `known_after` is the user's last event when a judgement was stored: a log that
# is run again uses for each observation what was known when it came, so the outcome does not depend on when it is run.
MIGRATIONS: dict[int, str] = {
    1: """
    CREATE TABLE meta (key {text} PRIMARY KEY, value {text} NOT NULL) {keyed};
    CREATE TABLE observations (
        sequence {sequence},
        id {text} NOT NULL UNIQUE,
        user {text} NOT NULL,
        text {text} NOT NULL,
        text_hash {text} NOT NULL,
        duplicate_key {text} NOT NULL,
        observed_at {text},
        source {text},
        recorded_at {text} NOT NULL
    );
    CREATE INDEX observations_by_user ON observations (user, sequence);
    CREATE INDEX observations_by_duplicate ON observations (user, duplicate_key);
    CREATE TABLE events (
        sequence {sequence},
        id {text} NOT NULL UNIQUE,
        user {text} NOT NULL,
        kind {text} NOT NULL,
        observation_id {text},
        recorded_at {text} NOT NULL,
        payload {text} NOT NULL
    );
    CREATE INDEX events_by_user ON events (user, sequence);
    CREATE INDEX events_by_observation ON events (observation_id);
    CREATE TABLE judgements (
        user {text} NOT NULL,
        new_hash {text} NOT NULL,
        old_hash {text} NOT NULL,
        model {text} NOT NULL,
        probabilities {blob} NOT NULL,
        known_after {integer} NOT NULL,
        PRIMARY KEY (user, new_hash, old_hash, model)
    ) {keyed};
    CREATE INDEX judgements_by_old ON judgements (user, old_hash);
    CREATE TABLE state (
        sequence {integer} PRIMARY KEY,
        id {text} NOT NULL UNIQUE,
        user {text} NOT NULL,
        primary_id {text} NOT NULL,
        view {text}
    );
    CREATE INDEX state_by_primary ON state (user, primary_id);
    CREATE TABLE vectors (
        user {text} NOT NULL,
        kind {text} NOT NULL,
        sequence {integer} NOT NULL,
        embedding {vector} NOT NULL,
        PRIMARY KEY (user, kind, sequence)
    ) {keyed};
    CREATE TABLE review (
        event_id {text} NOT NULL,
        user {text} NOT NULL,
        new_id {text} NOT NULL,
        old_id {text} NOT NULL,
        relation {text} NOT NULL,
        probability {real} NOT NULL,
        recorded_at {text} NOT NULL,
        PRIMARY KEY (event_id, old_id)
    ) {keyed};
    CREATE INDEX review_by_user ON review (user, recorded_at);
    """,
    # The log may hold reviews and replays from here on, which an older version cannot read. A page of views is found
    # without reading other users' rows.
    2: "CREATE INDEX primaries_by_user ON state (user, sequence) WHERE view IS NOT NULL;",
}

USER_TABLES = ("observations", "events", "judgements", "state", "vectors", "review")
"""The tables with rows of users, all of which have the column `user`."""


def statements(version: int, words: Mapping[str, str]) -> str:
    """Return the statements that lead to schema `version` from the one before, in one database's words."""
    return MIGRATIONS[version].format_map(words)
