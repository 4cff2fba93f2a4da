-- name: read_item
-- One item as a reader sees it now; no row when it was never written, is forgotten or has expired.
SELECT address, version, sequence, previous_version, erased_version, type, value, writer,
       change, changed_at, changed_by, expires_at, traceparent
  FROM memory_items
 WHERE address = $1 AND value IS NOT NULL AND expires_at > clock_timestamp();

-- name: list_items
-- A page of the live items of several places, in the order of addresses. A place is a range of addresses, and encoded
-- segments to compare where one before them is open.
SELECT i.address, i.version, i.sequence, i.previous_version, i.erased_version, i.type, i.value, i.writer,
       i.change, i.changed_at, i.changed_by, i.expires_at, i.traceparent
  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
    AS place (first, last, scope, workflow, kind, id)
 CROSS JOIN LATERAL (
    SELECT *
      FROM memory_items
     WHERE address > greatest(place.first COLLATE "C", $7) AND address < place.last
       AND value IS NOT NULL AND expires_at > clock_timestamp()
       AND (place.scope IS NULL OR split_part(address, '/', 2) = place.scope)
       AND (place.workflow IS NULL OR split_part(address, '/', 3) = place.workflow)
       AND (place.kind IS NULL OR split_part(address, '/', 4) = place.kind)
       AND (place.id IS NULL OR split_part(address, '/', 5) = place.id)
     ORDER BY address
     LIMIT $8
 ) AS i
 ORDER BY i.address
 LIMIT $8;

-- name: list_versions
-- What is kept of an item's past, newest first, before version $2.
SELECT address, version, type, value, writer, written_at, expires_at, command_key
  FROM memory_history
 WHERE address = $1 AND version < $2
 ORDER BY version DESC
 LIMIT $3;
