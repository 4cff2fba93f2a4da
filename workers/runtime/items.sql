-- name: read_items
-- Items, and a clock that is later than every change that is seen here.
SELECT clock.now, i.address, i.version, i.sequence, i.previous_version, i.erased_version, i.type, i.value, i.writer,
       i.change, i.changed_at, i.changed_by, i.expires_at, i.traceparent
  FROM (SELECT clock_timestamp() AS now) AS clock
  LEFT JOIN memory_items AS i ON i.address = ANY($1::text[]);

-- name: list_records
-- A workflow's live conversation records, newest first, as many as fit into the given bytes; and how many there are.
WITH there AS (
    SELECT address, octet_length(value) AS bytes, changed_at
      FROM memory_items
     WHERE address >= $1 AND address < $2
       AND type = 'conversation' AND expires_at > $3
), ranked AS (
    SELECT address,
           count(*) OVER () AS total,
           sum(bytes) OVER (ORDER BY changed_at DESC, address) - bytes AS bytes_before
      FROM there
)
SELECT i.address, i.version, i.sequence, i.previous_version, i.erased_version, i.type, i.value, i.writer,
       i.change, i.changed_at, i.changed_by, i.expires_at, i.traceparent, ranked.total
  FROM ranked
  JOIN memory_items AS i ON i.address = ranked.address
 WHERE ranked.bytes_before < $4;
