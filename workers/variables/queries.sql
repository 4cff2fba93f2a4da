-- name: ensure_positions
-- Make the fence rows of partitions that this group never had.
INSERT INTO consumer_positions (consumer_group, topic, partition, next_offset, updated_at)
SELECT $1, topic, partition, 0, clock_timestamp()
  FROM unnest($2::text[], $3::integer[]) AS new (topic, partition)
 ORDER BY topic, partition
    ON CONFLICT DO NOTHING;

-- name: lock_positions
-- Take the fence of each partition, in one order for every worker. It is held until the batch commits.
SELECT topic, partition, next_offset
  FROM consumer_positions
 WHERE consumer_group = $1
   AND (topic, partition) IN (SELECT topic, partition FROM unnest($2::text[], $3::integer[]) AS mine (topic, partition))
 ORDER BY topic, partition
   FOR UPDATE;

-- name: open_executions
-- Give executions that nobody saw before a row that can be locked.
INSERT INTO executions (tenant, execution_id, revision, status, head, seen_at, updated_at)
SELECT tenant, execution_id, 0, 'open', ''::bytea, now(), now()
  FROM unnest($1::text[], $2::text[]) AS new (tenant, execution_id)
 ORDER BY tenant COLLATE "C", execution_id COLLATE "C"
    ON CONFLICT DO NOTHING;

-- name: lock_heads
-- Lock the heads in one order for every worker; the newest committed row comes back, with the database's clock.
SELECT executions.tenant, executions.execution_id, revision, head, unpublished_from, clock_timestamp() AS now
  FROM executions
  JOIN unnest($1::text[], $2::text[]) AS wanted (tenant, execution_id)
    ON executions.tenant = wanted.tenant AND executions.execution_id = wanted.execution_id
 ORDER BY executions.tenant, executions.execution_id
   FOR NO KEY UPDATE OF executions;

-- name: known_events
-- Which of these events were applied before, and how much is stored of each. A statement of its own, after the locks:
-- in one with them it would not see what another worker committed while it waited.
SELECT event_key, tenant, execution_id, revision,
       octet_length(body)::bigint + octet_length(changes) + octet_length(outgoing) AS bytes
  FROM revisions
 WHERE event_key = ANY($1::uuid[]);

-- name: revisions_of
-- What these events brought about, as it is stored.
SELECT event_key, digest, tenant, execution_id, revision, body, changes, outgoing
  FROM revisions
 WHERE event_key = ANY($1::uuid[]);

-- name: bytes_from
-- How much is stored of the revisions of these executions from a number on.
SELECT revisions.tenant, revisions.execution_id,
       sum(octet_length(body)::bigint + octet_length(changes) + octet_length(outgoing))::bigint AS bytes
  FROM revisions
  JOIN unnest($1::text[], $2::text[], $3::bigint[]) AS wanted (tenant, execution_id, revision)
    ON revisions.tenant = wanted.tenant
   AND revisions.execution_id = wanted.execution_id
   AND revisions.revision >= wanted.revision
 WHERE event_key IS NOT NULL
 GROUP BY revisions.tenant, revisions.execution_id;

-- name: revisions_from
-- The revisions of these executions from a number on, as they are stored. Those that a fork inherited were published
-- by its source.
SELECT event_key, digest, revisions.tenant, revisions.execution_id, revisions.revision, body, changes, outgoing
  FROM revisions
  JOIN unnest($1::text[], $2::text[], $3::bigint[]) AS wanted (tenant, execution_id, revision)
    ON revisions.tenant = wanted.tenant
   AND revisions.execution_id = wanted.execution_id
   AND revisions.revision >= wanted.revision
 WHERE event_key IS NOT NULL;

-- name: known_rejections
-- Which of these records were refused before, and why.
SELECT rejections.topic, rejections.partition, record_offset, code, message
  FROM rejections
  JOIN unnest($1::text[], $2::integer[], $3::bigint[], $4::bigint[]) AS mine (topic, partition, record_offset, timestamp_ms)
 USING (topic, partition, record_offset, timestamp_ms);

-- name: changes_of
-- The changed entries of these executions, oldest first: replayed in order they give the store.
SELECT revisions.tenant, revisions.execution_id, changes
  FROM revisions
  JOIN unnest($1::text[], $2::text[], $3::bigint[]) AS wanted (tenant, execution_id, revision)
    ON revisions.tenant = wanted.tenant
   AND revisions.execution_id = wanted.execution_id
   AND revisions.revision <= wanted.revision
 ORDER BY revisions.tenant, revisions.execution_id, revisions.revision;

-- name: write_batch
-- Move the heads, append the revisions, remember what was refused, move the positions: all of a batch at once.
WITH moved_heads AS (
    UPDATE executions
       SET revision = new.revision,
           status = new.status,
           head = new.head,
           workflow = new.workflow,
           parent_execution_id = new.parent_execution_id,
           unpublished_from = new.unpublished_from,
           started_at = COALESCE(started_at, CASE WHEN new.status <> 'open' THEN $1::timestamptz END),
           ended_at = CASE WHEN new.status NOT IN ('open', 'running') THEN COALESCE(ended_at, $1::timestamptz) END,
           updated_at = $1::timestamptz
      FROM unnest($2::text[], $3::text[], $4::bigint[], $5::text[], $6::bytea[], $7::text[], $8::text[], $27::bigint[])
        AS new (tenant, execution_id, revision, status, head, workflow, parent_execution_id, unpublished_from)
     WHERE executions.tenant = new.tenant AND executions.execution_id = new.execution_id
    RETURNING 1
), appended AS (
    INSERT INTO revisions (tenant, execution_id, revision, event_key, digest, applied_at, body, changes, outgoing)
    SELECT tenant, execution_id, revision, event_key, digest, $1::timestamptz, body, changes, outgoing
      FROM unnest($9::text[], $10::text[], $11::bigint[], $12::uuid[], $13::bytea[], $14::bytea[], $15::bytea[], $16::bytea[])
        AS new (tenant, execution_id, revision, event_key, digest, body, changes, outgoing)
    RETURNING 1
), refused AS (
    INSERT INTO rejections (topic, partition, record_offset, timestamp_ms, code, message, rejected_at)
    SELECT topic, partition, record_offset, timestamp_ms, code, message, $1::timestamptz
      FROM unnest($17::text[], $18::integer[], $19::bigint[], $20::bigint[], $21::text[], $22::text[])
        AS new (topic, partition, record_offset, timestamp_ms, code, message)
    RETURNING 1
), moved_positions AS (
    UPDATE consumer_positions
       SET next_offset = new.next_offset, updated_at = $1::timestamptz
      FROM unnest($24::text[], $25::integer[], $26::bigint[]) AS new (topic, partition, next_offset)
     WHERE consumer_group = $23
       AND consumer_positions.topic = new.topic
       AND consumer_positions.partition = new.partition
    RETURNING 1
)
SELECT (SELECT count(*) FROM moved_heads) AS heads,
       (SELECT count(*) FROM appended) AS revisions,
       (SELECT count(*) FROM refused) AS rejections,
       (SELECT count(*) FROM moved_positions) AS positions;

-- name: note_published
-- Everything of these executions is published: whoever meets them next need not send their last batch again.
WITH mine AS (
    SELECT executions.tenant, executions.execution_id
      FROM executions
      JOIN unnest($1::text[], $2::text[], $3::bigint[]) AS published (tenant, execution_id, revision)
        ON executions.tenant = published.tenant
       AND executions.execution_id = published.execution_id
       AND executions.revision = published.revision
     ORDER BY executions.tenant, executions.execution_id
       FOR NO KEY UPDATE OF executions
)
UPDATE executions
   SET unpublished_from = revision + 1
  FROM mine
 WHERE executions.tenant = mine.tenant AND executions.execution_id = mine.execution_id;

-- name: drop_unused_rows
-- Take back the rows of executions of which nothing was recorded. The caller holds their locks.
-- `OFFSET 0` has each row looked up by its key: the planner believes that so few are at revision 0 that it looks for
-- them through the whole table.
DELETE FROM executions
 USING unnest($1::text[], $2::text[]) AS unused (tenant, execution_id)
 CROSS JOIN LATERAL (
    SELECT head.tenant, head.execution_id
      FROM executions AS head
     WHERE head.tenant = unused.tenant AND head.execution_id = unused.execution_id AND head.revision = 0
    OFFSET 0
 ) AS found
 WHERE executions.tenant = found.tenant AND executions.execution_id = found.execution_id;

-- name: hold_revision
-- Whether an execution has got as far as a revision, the one to fork from. Until the end of the transaction it is not
-- deleted; this waits for nobody but such a deletion.
SELECT true
  FROM executions
  JOIN revisions USING (tenant, execution_id)
 WHERE executions.tenant = $1 AND executions.execution_id = $2 AND revisions.revision = $3
   FOR KEY SHARE OF executions;

-- name: inherit_revisions
-- Give forks the revisions that they begin with, as rows of their own: their source may be deleted before them. Nothing
-- that was sent to a fork made them, so they have no event of their own.
WITH inherited AS (
    INSERT INTO revisions (tenant, execution_id, revision, applied_at, body, changes, outgoing)
    SELECT fork.tenant, fork.execution_id, fork.before + revision, applied_at, body, changes, outgoing
      FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[])
        AS fork (tenant, execution_id, source_id, revisions, before)
      JOIN revisions AS source
        ON source.tenant = fork.tenant
       AND source.execution_id = fork.source_id
       AND source.revision <= fork.revisions
    RETURNING 1
)
SELECT count(*) FROM inherited;

-- name: database_now
-- The clock that decides when there is no row to read it with.
SELECT clock_timestamp();
