-- Durable memory: items, their history, the one outcome of each command.
-- An address names the tenant first; COLLATE "C" makes its primary key serve every listing by prefix.

CREATE TABLE memory_items (
    address text COLLATE "C" NOT NULL,
    -- The highest version ever used: it outlives forget and expiry, so that no number comes twice.
    version bigint NOT NULL DEFAULT 0,
    -- Counts every change, forget and expiry included.
    sequence bigint NOT NULL DEFAULT 0,
    -- The live version that the newest change replaced; 0 when there was none.
    previous_version bigint NOT NULL DEFAULT 0,
    -- History up to here was erased by forget or expiry; rows may wait for the sweep, nobody shows them.
    erased_version bigint NOT NULL DEFAULT 0,
    type text,
    -- Compact JSON bytes. Not jsonb, which refuses \u0000 and respells numbers.
    value bytea,
    writer bytea,
    -- The newest change: what made `memory.changed`, so that it can be sent again from the row alone.
    change text,
    changed_at timestamptz,
    changed_by uuid,
    expires_at timestamptz,
    traceparent text,
    CONSTRAINT one_row_per_address PRIMARY KEY (address),
    -- Both or neither, in one row: a killed worker never leaves a value without its expiry.
    CONSTRAINT every_value_expires CHECK ((value IS NULL) = (expires_at IS NULL)),
    CONSTRAINT every_value_has_a_type CHECK ((value IS NULL) = (type IS NULL)),
    CONSTRAINT change_is_known CHECK (change IN ('written', 'forgotten', 'expired')),
    CONSTRAINT changes_are_dated CHECK ((sequence = 0) = (changed_at IS NULL)),
    CONSTRAINT versions_are_counted CHECK (version >= 0 AND sequence >= version AND erased_version <= version)
    -- Room for the next row version on the same page, and no index on anything that a write changes: updates are HOT.
    -- (An index on expires_at took their share from 93 % to 0 % and a third of the speed.)
) WITH (fillfactor = 85);

CREATE TABLE memory_versions (
    address text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    type text NOT NULL,
    -- Null for conversation records: their messages are their history.
    value bytea,
    writer bytea,
    written_at timestamptz NOT NULL,
    -- When this version's own retention ends. The item's newest version has the item's expiry: this is how the
    -- sweep finds expired items without an index on memory_items.
    expires_at timestamptz NOT NULL,
    command_key uuid NOT NULL,
    CONSTRAINT one_row_per_version PRIMARY KEY (address, version),
    CONSTRAINT versions_start_at_one CHECK (version >= 1)
);

CREATE INDEX memory_versions_by_expiry ON memory_versions (expires_at);

-- What people may see of an item's past.
CREATE VIEW memory_history AS
SELECT v.address, v.version, v.type, v.value, v.writer, v.written_at, v.expires_at, v.command_key
  FROM memory_versions AS v
  JOIN memory_items AS i ON i.address = v.address
 WHERE v.version > i.erased_version
   AND v.expires_at > clock_timestamp();

CREATE TABLE memory_outcomes (
    -- Identity of the command (tenant, source, id), and 16 bytes of its content: the same command again is answered
    -- from this row; the same identity with other content is refused.
    command_key uuid NOT NULL,
    digest bytea NOT NULL,
    -- Null only for a command that named no item.
    address text COLLATE "C",
    -- The Kafka key of the outcome, and the events themselves as they were and will be published.
    reply_key text NOT NULL,
    outcome bytea NOT NULL,
    conflict bytea,
    decided_at timestamptz NOT NULL,
    CONSTRAINT one_outcome_per_command PRIMARY KEY (command_key),
    CONSTRAINT digest_has_16_bytes CHECK (octet_length(digest) = 16)
);

-- For the sweep, and for the newest conflicts.
CREATE INDEX memory_outcomes_by_time ON memory_outcomes (decided_at);

-- History that waits to be deleted, in small steps: up to this version of this address.
CREATE TABLE memory_erasures (
    address text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    CONSTRAINT one_erasure_per_address PRIMARY KEY (address)
);

-- Changes that no command will be delivered again for (expiry): to be published, then deleted from here.
CREATE TABLE memory_unpublished (
    address text COLLATE "C" NOT NULL,
    sequence bigint NOT NULL,
    CONSTRAINT one_unpublished_change_per_address PRIMARY KEY (address)
);
