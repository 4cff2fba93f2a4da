-- name: list_executions
-- A page of a tenant's executions, newest first; $2 and $3 narrow it, ($4, $5) is the last one of the page before.
SELECT tenant, execution_id, revision, status, workflow, parent_execution_id, seen_at, started_at, ended_at, updated_at
  FROM executions
 WHERE tenant = $1
   AND revision > 0
   AND ($2::text IS NULL OR status = $2)
   AND ($3::text IS NULL OR workflow = $3)
   AND ($4::timestamptz IS NULL OR (seen_at, execution_id) < ($4, $5::text))
 ORDER BY seen_at DESC, execution_id DESC
 LIMIT $6;

-- name: one_execution
-- One execution's head.
SELECT tenant, execution_id, revision, status, workflow, parent_execution_id, seen_at, started_at, ended_at, updated_at
  FROM executions
 WHERE tenant = $1 AND execution_id = $2 AND revision > 0;

-- name: children_of
-- The sub-executions of an execution, oldest first.
SELECT tenant, execution_id, revision, status, workflow, parent_execution_id, seen_at, started_at, ended_at, updated_at
  FROM executions
 WHERE tenant = $1 AND parent_execution_id = $2
 ORDER BY seen_at, execution_id;

-- name: list_revisions
-- A page of an execution's revisions after $3, oldest first.
SELECT revision, event_key, applied_at, body, changes, outgoing
  FROM revisions
 WHERE tenant = $1 AND execution_id = $2 AND revision > $3
 ORDER BY revision
 LIMIT $4;

-- name: changes_up_to
-- The changed entries of one execution up to a revision, oldest first: replayed in order they give its store.
SELECT revision, changes
  FROM revisions
 WHERE tenant = $1 AND execution_id = $2 AND revision <= $3
 ORDER BY revision;

-- name: is_applied
-- Whether an event has made a revision of this execution.
SELECT EXISTS (SELECT FROM revisions WHERE event_key = $3 AND tenant = $1 AND execution_id = $2);
