-- Which executions ended long ago. `ended_at` is set once, so the index costs an execution one entry.
CREATE INDEX executions_by_end ON executions (ended_at) WHERE ended_at IS NOT NULL;
