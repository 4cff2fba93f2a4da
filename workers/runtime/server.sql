-- name: server_state
-- What of the server decides whether a commit can be made, and whether it stays.
SELECT pg_is_in_recovery() AS standby,
       current_setting('default_transaction_read_only')::boolean AS read_only,
       current_setting('fsync')::boolean AND current_setting('full_page_writes')::boolean AS durable;

-- name: held_up
-- Workers that wait for a lock, longer than batches wait for each other, and who holds it.
SELECT waiting.application_name AS worker,
       extract(epoch FROM clock_timestamp() - waiting.query_start)::bigint AS seconds,
       holder.pid AS holder,
       coalesce(nullif(holder.application_name, ''), holder.usename) AS holder_name
  FROM pg_stat_activity AS waiting
 CROSS JOIN LATERAL unnest(pg_blocking_pids(waiting.pid)) AS blocking (pid)
  JOIN pg_stat_activity AS holder ON holder.pid = blocking.pid
 WHERE waiting.datname = current_database()
   AND waiting.application_name = ANY($1::text[])
   AND waiting.query_start < clock_timestamp() - interval '3 seconds'
 ORDER BY waiting.query_start
 LIMIT 1;
