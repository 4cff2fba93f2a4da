-- name: items
-- Every item's row.
SELECT address, version, sequence, erased_version, value, expires_at FROM memory_items;

-- name: versions
-- The history that nobody erased; rows below an erasure wait for the sweep.
SELECT v.address, v.version, v.value, v.command_key
  FROM memory_versions AS v
  JOIN memory_items AS i ON i.address = v.address AND v.version > i.erased_version;

-- name: outcomes
-- The outcome and conflict event of every command, as they were published.
SELECT command_key, outcome, conflict FROM memory_outcomes;

-- name: heads
-- Every execution's head.
SELECT tenant, execution_id, revision, status, head FROM executions;

-- name: revisions
-- Every revision.
SELECT tenant, execution_id, revision, event_key, body, changes, outgoing FROM revisions;

-- name: positions
-- How far each group has applied its input.
SELECT consumer_group, topic, partition, next_offset FROM consumer_positions;

-- name: unpublished
-- Expiries that wait to be published.
SELECT count(*) FROM memory_unpublished;

-- name: end_sessions
-- End the workers' sessions, as an administrator or a failing network does.
SELECT count(*) FILTER (WHERE pg_terminate_backend(pid))
  FROM pg_stat_activity
 WHERE application_name LIKE 'tally-%' AND datname = current_database();
