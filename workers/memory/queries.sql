-- name: add_positions
-- Give every partition its fence row.
INSERT INTO consumer_positions (consumer_group, topic, partition, next_offset, updated_at)
SELECT $1, $2, partition, 0, clock_timestamp()
  FROM unnest($3::integer[]) AS partition
 ORDER BY partition
    ON CONFLICT DO NOTHING;

-- name: read_positions
-- The fences, as this worker finds them: each batch moves them on from where the one before left them.
SELECT partition, next_offset
  FROM consumer_positions
 WHERE consumer_group = $1 AND topic = $2 AND partition = ANY($3::integer[]);

-- name: add_items
-- Give addresses their rows, so that changing one is an update. In a transaction of its own, and sorted: no deadlock.
-- It waits for no disk: the batch's own commit takes it along, and rows that a crash took are made again.
WITH at_once AS (
    SELECT set_config('synchronous_commit', 'off', true)
)
INSERT INTO memory_items (address)
SELECT address
  FROM at_once, unnest($1::text[]) AS address
 ORDER BY address COLLATE "C"
    ON CONFLICT DO NOTHING;

-- name: lock_items
-- Lock the items that may change, in the order that every worker uses: for a batch that was overtaken once.
SELECT 1
  FROM memory_items
 WHERE address = ANY($1::text[])
 ORDER BY address
   FOR NO KEY UPDATE;

-- name: read_known
-- What was decided before. Read before the items: what is decided in between finds its row there when it is written,
-- while an item that was read first could lack what a known command did to it.
SELECT clock.now, o.command_key, o.digest, o.address, o.reply_key, o.outcome, o.conflict
  FROM (SELECT clock_timestamp() AS now) AS clock
  LEFT JOIN memory_outcomes AS o ON o.command_key = ANY($1::uuid[]);

-- name: read_bases
-- The versions that refused writers started from.
SELECT v.address, v.version, v.type, v.value, v.writer, v.written_at, v.expires_at, v.command_key
  FROM unnest($1::text[], $2::bigint[]) AS wanted (address, version)
  JOIN memory_versions AS v ON v.address = wanted.address AND v.version = wanted.version;

-- name: write_batch
-- Everything a batch comes to, set by set, if nothing that it rests on has changed: items are at the sequence that they
-- were read at, those that were not read and stay as they are ($35) too, fences where they were left, and nobody has
-- answered one of the commands. Otherwise nothing is written.
-- The newest version of an item is remembered from the item's own row, without the value where $14 is its type: only
-- versions that the batch itself replaced come extra.
WITH changed AS (
    SELECT n.address, n.read_sequence, n.version, n.sequence, n.previous_version, n.erased_version, n.type, n.value,
           n.writer, CASE WHEN n.value IS NULL THEN 'forgotten' ELSE 'written' END AS change,
           n.changed_by, n.expires_at, n.traceparent
      FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[],
                  $9::bytea[], $10::bytea[], $11::uuid[], $12::timestamptz[], $13::text[])
        AS n (address, read_sequence, version, sequence, previous_version, erased_version, type, value, writer,
              changed_by, expires_at, traceparent)
), written AS (
    UPDATE memory_items AS i
       SET version = n.version, sequence = n.sequence, previous_version = n.previous_version,
           erased_version = n.erased_version, type = n.type, value = n.value, writer = n.writer, change = n.change,
           changed_at = $1, changed_by = n.changed_by, expires_at = n.expires_at, traceparent = n.traceparent
      FROM changed AS n
     WHERE i.address = n.address AND i.sequence = n.read_sequence
    RETURNING 1
), remembered AS (
    INSERT INTO memory_versions (address, version, type, value, writer, written_at, expires_at, command_key)
    SELECT n.address, n.version, n.type, CASE WHEN n.type <> $14 THEN n.value END, n.writer, $1, n.expires_at,
           n.changed_by
      FROM changed AS n
     WHERE n.value IS NOT NULL
    UNION ALL
    SELECT n.address, n.version, n.type, n.value, n.writer, $1, n.expires_at, n.command_key
      FROM unnest($15::text[], $16::bigint[], $17::text[], $18::bytea[], $19::bytea[], $20::timestamptz[],
                  $21::uuid[])
        AS n (address, version, type, value, writer, expires_at, command_key)
), answered AS (
    INSERT INTO memory_outcomes (command_key, digest, address, reply_key, outcome, conflict, decided_at)
    SELECT n.command_key, n.digest, n.address, n.reply_key, n.outcome, n.conflict, $1
      FROM unnest($22::uuid[], $23::bytea[], $24::text[], $25::text[], $26::bytea[], $27::bytea[])
        AS n (command_key, digest, address, reply_key, outcome, conflict)
), erased AS (
    INSERT INTO memory_erasures AS e (address, version)
    SELECT n.address, n.version
      FROM unnest($28::text[], $29::bigint[]) AS n (address, version)
     ORDER BY n.address COLLATE "C"
        ON CONFLICT (address) DO UPDATE SET version = greatest(e.version, excluded.version)
), moved AS (
    UPDATE consumer_positions AS p
       SET next_offset = n.next_offset, updated_at = $1
      FROM unnest($32::integer[], $33::bigint[], $34::bigint[]) AS n (partition, left_at, next_offset)
     WHERE p.consumer_group = $30 AND p.topic = $31 AND p.partition = n.partition AND p.next_offset = n.left_at
    RETURNING 1
)
SELECT unless_overtaken('items', cardinality($2::text[]), (SELECT count(*) FROM written)),
       unless_overtaken('positions', cardinality($32::integer[]), (SELECT count(*) FROM moved)),
       unless_overtaken('items', cardinality($35::text[]), (
           SELECT count(*)
             FROM unnest($35::text[], $36::bigint[]) AS n (address, sequence)
             JOIN memory_items AS i ON i.address = n.address AND i.sequence = n.sequence
       ));

-- name: note_erasures
-- Let the sweep delete the history of forgotten and expired items.
INSERT INTO memory_erasures AS e (address, version)
SELECT address, version
  FROM unnest($1::text[], $2::bigint[]) AS n (address, version)
 ORDER BY address COLLATE "C"
    ON CONFLICT (address) DO UPDATE SET version = greatest(e.version, excluded.version);

-- name: read_newer
-- Items that changed again since the given change was published.
SELECT i.address, i.version, i.sequence, i.previous_version, i.erased_version, i.type, i.value, i.writer,
       i.change, i.changed_at, i.changed_by, i.expires_at, i.traceparent
  FROM unnest($1::text[], $2::bigint[]) AS published (address, sequence)
  JOIN memory_items AS i ON i.address = published.address
 WHERE i.sequence > published.sequence;

-- name: find_expired
-- Versions whose retention is over, oldest first, past those that could not be locked.
SELECT clock.now, v.address, v.version
  FROM (SELECT clock_timestamp() AS now) AS clock
 CROSS JOIN LATERAL (
    SELECT address, version
      FROM memory_versions
     WHERE expires_at <= clock.now
     ORDER BY expires_at, address, version
     LIMIT $1 OFFSET $2
 ) AS v;

-- name: lock_unlocked_items
-- Lock those of the items that no batch works on now; the others come next time.
SELECT address, version, sequence, previous_version, erased_version, type, value, writer,
       change, changed_at, changed_by, expires_at, traceparent
  FROM memory_items
 WHERE address = ANY($1::text[])
 ORDER BY address
   FOR NO KEY UPDATE SKIP LOCKED;

-- name: expire_items
-- Take the values away and note the changes as not published yet, in one statement of one transaction.
WITH expired AS (
    UPDATE memory_items AS i
       SET sequence = n.sequence, previous_version = n.previous_version, erased_version = n.erased_version,
           type = NULL, value = NULL, writer = NULL, change = 'expired', changed_at = n.changed_at,
           changed_by = n.changed_by, expires_at = NULL, traceparent = NULL
      FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::timestamptz[], $6::uuid[])
        AS n (address, sequence, previous_version, erased_version, changed_at, changed_by)
     WHERE i.address = n.address
    RETURNING i.address, i.sequence
)
INSERT INTO memory_unpublished AS u (address, sequence)
SELECT address, sequence FROM expired
    ON CONFLICT (address) DO UPDATE SET sequence = excluded.sequence;

-- name: delete_versions
-- Delete entries of the history.
DELETE FROM memory_versions AS v
 USING unnest($1::text[], $2::bigint[]) AS n (address, version)
 WHERE v.address = n.address AND v.version = n.version;

-- name: read_unpublished
-- Changes that wait to be published, as the items are now.
SELECT i.address, i.version, i.sequence, i.previous_version, i.erased_version, i.type, i.value, i.writer,
       i.change, i.changed_at, i.changed_by, i.expires_at, i.traceparent
  FROM (SELECT address FROM memory_unpublished ORDER BY address LIMIT $1) AS u
  JOIN memory_items AS i ON i.address = u.address
 ORDER BY i.address;

-- name: delete_unpublished
-- These changes, or later ones of the same items, are acknowledged.
DELETE FROM memory_unpublished AS u
 USING unnest($1::text[], $2::bigint[]) AS published (address, sequence)
 WHERE u.address = published.address AND u.sequence <= published.sequence;

-- name: erase_history
-- Delete a step's worth of the history that forget and expiry left behind, of the first items that wait for it.
DELETE FROM memory_versions AS v
 USING (
    SELECT o.address, o.version
      FROM (SELECT address, version FROM memory_erasures ORDER BY address LIMIT $1) AS e
      JOIN memory_versions AS o ON o.address = e.address AND o.version <= e.version
     LIMIT $1
       FOR UPDATE OF o SKIP LOCKED
 ) AS step
 WHERE v.address = step.address AND v.version = step.version;

-- name: finish_erasures
-- Strike off those of the first erasures that have nothing left to delete. Only the first: after a million items were
-- forgotten, each step would look at all of them.
DELETE FROM memory_erasures AS e
 USING (SELECT address FROM memory_erasures ORDER BY address LIMIT $1) AS first
 WHERE e.address = first.address
   AND NOT EXISTS (SELECT 1 FROM memory_versions AS v WHERE v.address = e.address AND v.version <= e.version);

-- name: delete_outcomes
-- Delete a step's worth of outcomes whose commands cannot come again.
DELETE FROM memory_outcomes AS o
 USING (
    SELECT command_key
      FROM memory_outcomes
     WHERE decided_at < now() - $1::interval
     ORDER BY decided_at
     LIMIT $2
       FOR UPDATE SKIP LOCKED
 ) AS step
 WHERE o.command_key = step.command_key;
