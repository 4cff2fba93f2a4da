-- name: read_item
-- One item as a reader sees it now; no row when it was never written, is forgotten or has expired.
SELECT address, version, sequence, previous_version, erased_version, type, value, writer,
       change, changed_at, changed_by, expires_at, traceparent
  FROM memory_items
 WHERE address = $1 AND value IS NOT NULL AND expires_at > clock_timestamp();

-- name: list_items
-- A page of a tenant's live items in the order of their addresses; $3 to $6 narrow it by encoded segments.
SELECT address, version, sequence, previous_version, erased_version, type, value, writer,
       change, changed_at, changed_by, expires_at, traceparent
  FROM memory_items
 WHERE address > $1 AND address < $2
   AND value IS NOT NULL AND expires_at > clock_timestamp()
   AND ($3::text IS NULL OR split_part(address, '/', 2) = $3)
   AND ($4::text IS NULL OR split_part(address, '/', 3) = $4)
   AND ($5::text IS NULL OR split_part(address, '/', 4) = $5)
   AND ($6::text IS NULL OR split_part(address, '/', 5) = $6)
 ORDER BY address
 LIMIT $7;

-- name: list_versions
-- What is kept of an item's past, newest first, before version $2.
SELECT address, version, type, value, writer, written_at, expires_at, command_key
  FROM memory_history
 WHERE address = $1 AND version < $2
 ORDER BY version DESC
 LIMIT $3;
