#!/bin/sh
# Run once by the image when the database is made: the store belongs to a role that is no superuser, so that row-level
# security holds for it (roam/FLEETS.md).
set -eu
psql -v ON_ERROR_STOP=1 -v password="$ROAM_DB_PASSWORD" -U "${POSTGRES_USER:-postgres}" -d "$POSTGRES_DB" <<'SQL'
CREATE EXTENSION IF NOT EXISTS vector;
CREATE ROLE roam LOGIN PASSWORD :'password';
CREATE SCHEMA memories AUTHORIZATION roam;
ALTER ROLE roam SET search_path = memories, public;
SQL
