-- name: lock_migrations
-- One migrator at a time; the number is "tally" in ASCII. Released when the session ends.
SELECT pg_advisory_lock(499847097465);

-- name: database_encoding
-- What the database can hold.
SHOW server_encoding;

-- name: create_schema_migrations
-- The record of what was applied.
CREATE TABLE IF NOT EXISTS schema_migrations (
    name text CONSTRAINT migration_applied_once PRIMARY KEY,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- name: has_schema_migrations
-- Whether any migrator was ever here.
SELECT to_regclass('schema_migrations') IS NOT NULL;

-- name: applied_migrations
-- What was applied, with the checksum of the file that did it.
SELECT name, checksum FROM schema_migrations ORDER BY name;

-- name: record_migration
-- Record one, in the transaction that applied it.
INSERT INTO schema_migrations (name, checksum) VALUES ($1, $2);
