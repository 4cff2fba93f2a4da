-- name: lock_items
-- The raw compare: the versions of a batch's items, locked in one order.
SELECT address, version
  FROM memory_items
 WHERE address = ANY($1::text[])
 ORDER BY address
   FOR NO KEY UPDATE;

-- name: add_items
-- Rows for the raw contender's items.
INSERT INTO memory_items (address) SELECT unnest($1::text[]);

-- name: set_items
-- The raw set: items, one row of history for each write, one outcome for each command.
WITH written AS (
    UPDATE memory_items AS i
       SET version = n.version, sequence = n.version, type = 'Json', value = n.value, writer = '{}', change = 'written',
           changed_at = now(), changed_by = n.changed_by, expires_at = now() + interval '30 days'
      FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::uuid[]) AS n (address, version, value, changed_by)
     WHERE i.address = n.address
), remembered AS (
    INSERT INTO memory_versions (address, version, type, value, writer, written_at, expires_at, command_key)
    SELECT address, version, 'Json', value, '{}', now(), now() + interval '30 days', command_key
      FROM unnest($5::text[], $6::bigint[], $7::bytea[], $8::uuid[]) AS n (address, version, value, command_key)
)
INSERT INTO memory_outcomes (command_key, digest, address, reply_key, outcome, conflict, decided_at)
SELECT command_key, digest, address, address, outcome, conflict, now()
  FROM unnest($9::uuid[], $10::bytea[], $11::text[], $12::bytea[], $13::bytea[])
    AS n (command_key, digest, address, outcome, conflict);

-- name: add_executions
-- Rows for the raw contender's executions.
INSERT INTO executions (tenant, execution_id, revision, status, head, seen_at, updated_at)
SELECT 'default', id, 0, 'open', '', now(), now() FROM unnest($1::text[]) AS id;

-- name: write_revisions
-- The raw commit of variable events: revision rows, and head moves.
WITH moved AS (
    UPDATE executions AS e
       SET revision = n.revision, head = n.head, updated_at = now()
      FROM unnest($1::text[], $2::bigint[], $3::bytea[]) AS n (execution_id, revision, head)
     WHERE e.tenant = 'default' AND e.execution_id = n.execution_id
)
INSERT INTO revisions (tenant, execution_id, revision, event_key, digest, applied_at, body, changes, outgoing)
SELECT 'default', execution_id, revision, event_key, digest, now(), body, changes, outgoing
  FROM unnest($4::text[], $5::bigint[], $6::uuid[], $7::bytea[], $8::bytea[], $9::bytea[], $10::bytea[])
    AS n (execution_id, revision, event_key, digest, body, changes, outgoing);
