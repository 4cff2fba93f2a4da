-- name: delete_executions
-- Delete some executions that ended before a moment, with their revisions. Those that a worker holds are passed over.
-- `now()`, for the index stops at a moment that stands still; up to `clock_timestamp()` it is read from end to end.
WITH due AS (
    SELECT tenant, execution_id
      FROM executions
     WHERE ended_at < now() - make_interval(days => $1)
     ORDER BY ended_at
     LIMIT $2
       FOR UPDATE SKIP LOCKED
), history AS (
    DELETE FROM revisions
     USING due
     WHERE revisions.tenant = due.tenant AND revisions.execution_id = due.execution_id
), heads AS (
    DELETE FROM executions
     USING due
     WHERE executions.tenant = due.tenant AND executions.execution_id = due.execution_id
    RETURNING 1
)
SELECT count(*) FROM heads;

-- name: delete_rejections
-- Delete some refusals whose records cannot come again: they are older than every topic's retention.
DELETE FROM rejections
 USING (
    SELECT topic, partition, record_offset, timestamp_ms
      FROM rejections
     WHERE rejected_at < now() - make_interval(days => $1)
     ORDER BY rejected_at
     LIMIT $2
       FOR UPDATE SKIP LOCKED
 ) AS step
 WHERE rejections.topic = step.topic
   AND rejections.partition = step.partition
   AND rejections.record_offset = step.record_offset
   AND rejections.timestamp_ms = step.timestamp_ms;
