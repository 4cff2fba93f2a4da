-- Executions, their revisions, and how far each worker has applied its input.
-- Text that is compared with Kafka keys or ordered is COLLATE "C": bytes, the same on every server.

CREATE TABLE consumer_positions (
    consumer_group text COLLATE "C" NOT NULL,
    topic text COLLATE "C" NOT NULL,
    partition integer NOT NULL,
    -- The fence: the offset after the last one that was applied. A worker that finds another one than it left
    -- was replaced meanwhile.
    next_offset bigint NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT one_position_per_partition PRIMARY KEY (consumer_group, topic, partition),
    CONSTRAINT position_is_an_offset CHECK (next_offset >= 0)
);

CREATE TABLE executions (
    tenant text COLLATE "C" NOT NULL,
    execution_id text COLLATE "C" NOT NULL,
    -- 0 while a batch that saw the execution first has not recorded anything of it.
    revision bigint NOT NULL,
    status text NOT NULL,
    -- The fold's own head, as JSON bytes: what the next decision needs beside the entries.
    head bytea NOT NULL,
    -- Where its last batch began: what came before is published, the rest is for sure once the next batch is written.
    unpublished_from bigint NOT NULL DEFAULT 1,
    workflow text,
    parent_execution_id text,
    -- When the first event of it came, which may be an output that overtook its execution.started. Never changes.
    seen_at timestamptz NOT NULL,
    started_at timestamptz,
    ended_at timestamptz,
    updated_at timestamptz NOT NULL,
    CONSTRAINT one_head_per_execution PRIMARY KEY (tenant, execution_id),
    CONSTRAINT execution_status_is_known CHECK (status IN ('open', 'running', 'completed', 'failed', 'cancelled')),
    CONSTRAINT execution_revision_is_not_negative CHECK (revision >= 0),
    CONSTRAINT ended_executions_have_an_end CHECK ((ended_at IS NULL) = (status IN ('open', 'running')))
) WITH (fillfactor = 70);

-- Newest first. No indexed column ever changes, so that a head's update stays on its page (HOT).
CREATE INDEX executions_newest_first ON executions (tenant, seen_at DESC, execution_id DESC);
CREATE INDEX executions_of_a_parent ON executions (tenant, parent_execution_id) WHERE parent_execution_id IS NOT NULL;

CREATE TABLE revisions (
    tenant text COLLATE "C" NOT NULL,
    execution_id text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    -- Identity of the event that made the revision, and 16 bytes of its content: the same event twice is answered
    -- from this row; the same identity with other content is refused.
    event_key uuid,
    digest bytea,
    applied_at timestamptz NOT NULL,
    -- The public part (cause, reads, writes, late), the changed entries, the events that were caused: JSON bytes.
    -- Not jsonb, which refuses \u0000 and respells numbers.
    body bytea NOT NULL,
    changes bytea NOT NULL,
    outgoing bytea NOT NULL,
    CONSTRAINT one_row_per_revision PRIMARY KEY (tenant, execution_id, revision),
    CONSTRAINT event_applied_once UNIQUE NULLS DISTINCT (event_key),
    CONSTRAINT revision_numbers_start_at_one CHECK (revision >= 1),
    CONSTRAINT revision_digest_has_16_bytes CHECK (digest IS NULL OR octet_length(digest) = 16),
    CONSTRAINT revision_with_event_has_digest CHECK ((event_key IS NULL) = (digest IS NULL))
);

-- What was not accepted, by the place where the record lies, so that a second delivery of the record gives the same
-- dead letter, whatever the execution's state is by then. `timestamp_ms` tells a topic that was made anew.
CREATE TABLE rejections (
    topic text COLLATE "C" NOT NULL,
    partition integer NOT NULL,
    record_offset bigint NOT NULL,
    timestamp_ms bigint NOT NULL,
    code text NOT NULL,
    message text NOT NULL,
    rejected_at timestamptz NOT NULL,
    CONSTRAINT record_rejected_once PRIMARY KEY (topic, partition, record_offset, timestamp_ms)
);
