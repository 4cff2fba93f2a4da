"""The variable worker's rows in PostgreSQL: typed values in and out, one method per query, no rule inside."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import asyncpg

from topics.catalog import Topic
from topics.records import ReceivedRecord
from workers.logic.variables.state import ExecutionKey
from workers.runtime.postgres import Connection
from workers.runtime.queries import load_queries
from workers.variables.rows import apply_changes, decode_changes

_QUERIES = load_queries(__file__)

#: Topic (logical) and partition.
Lane = tuple[Topic, int]


class Head(NamedTuple):
    """An execution's committed revision; `data` is None before the first.

    From `unpublished_from` on, revisions were committed by the last batch, which may not have published them.
    """

    revision: int
    data: bytes | None
    unpublished_from: int = 1


class Known(NamedTuple):
    """An event that was applied before: its revision as it is stored."""

    key: UUID
    digest: bytes
    execution: ExecutionKey
    revision: int
    body: bytes
    changes: bytes
    outgoing: bytes


class Size(NamedTuple):
    """An event that was applied before: which revision it made, and how many bytes are stored of that."""

    execution: ExecutionKey
    revision: int
    bytes: int


class Refusal(NamedTuple):
    """Why a record was not accepted."""

    record: ReceivedRecord
    code: str
    message: str


class HeadRow(NamedTuple):
    """A head as it is written."""

    execution: ExecutionKey
    revision: int
    status: str
    head: bytes
    workflow: str | None
    parent_execution_id: str | None
    unpublished_from: int


class RevisionRow(NamedTuple):
    """A revision as it is written."""

    execution: ExecutionKey
    revision: int
    event_key: UUID
    digest: bytes
    body: bytes
    changes: bytes
    outgoing: bytes


class Inheritance(NamedTuple):
    """What a fork begins with: the first `revisions` of its source, after those `before` that came early for itself."""

    execution: ExecutionKey
    source_id: str
    revisions: int
    before: int


async def lock_positions(connection: Connection, group: str, lanes: Collection[Lane]) -> dict[Lane, int]:
    """Take the fence of each lane until the transaction ends; return the stored positions."""
    topics = [topic.value for topic, _ in lanes]
    partitions = [partition for _, partition in lanes]
    rows = await connection.fetch(_QUERIES["lock_positions"], group, topics, partitions)
    if len(rows) < len(lanes):
        await connection.execute(_QUERIES["ensure_positions"], group, topics, partitions)
        rows = await connection.fetch(_QUERIES["lock_positions"], group, topics, partitions)
    return {(Topic(row["topic"]), row["partition"]): row["next_offset"] for row in rows}


async def open_executions(connection: Connection, executions: Collection[ExecutionKey]) -> None:
    """Give unknown executions a row, at revision 0."""
    await connection.execute(_QUERIES["open_executions"], *_columns(executions))


async def lock_heads(
    connection: Connection, executions: Collection[ExecutionKey]
) -> tuple[dict[ExecutionKey, Head], datetime | None]:
    """Lock the heads; return them, and the database's clock when there is any."""
    rows = await connection.fetch(_QUERIES["lock_heads"], *_columns(executions))
    heads = {
        ExecutionKey(row["tenant"], row["execution_id"]): Head(
            row["revision"], row["head"] if row["revision"] else None, row["unpublished_from"]
        )
        for row in rows
    }
    return heads, rows[0]["now"] if rows else None


async def known_events(connection: Connection, keys: Collection[UUID]) -> dict[UUID, Size]:
    """Return those of `keys` that were applied before, and how much is stored of each."""
    return {
        row["event_key"]: Size(ExecutionKey(row["tenant"], row["execution_id"]), row["revision"], row["bytes"])
        for row in await connection.fetch(_QUERIES["known_events"], keys)
    }


async def revisions_of(connection: Connection, keys: Collection[UUID]) -> dict[UUID, Known]:
    """Return what events that were applied before brought about."""
    return _known(await connection.fetch(_QUERIES["revisions_of"], keys))


async def bytes_from(connection: Connection, revisions: Mapping[ExecutionKey, int]) -> dict[ExecutionKey, int]:
    """Return how much is stored of the revisions of executions from a number on."""
    rows = await connection.fetch(_QUERIES["bytes_from"], *_columns(revisions), list(revisions.values()))
    return {ExecutionKey(row["tenant"], row["execution_id"]): row["bytes"] for row in rows}


async def revisions_from(connection: Connection, revisions: Mapping[ExecutionKey, int]) -> dict[UUID, Known]:
    """Return the stored revisions of executions from a number on."""
    return _known(await connection.fetch(_QUERIES["revisions_from"], *_columns(revisions), list(revisions.values())))


def _known(rows: Iterable[asyncpg.Record]) -> dict[UUID, Known]:
    return {
        row["event_key"]: Known(
            key=row["event_key"],
            digest=row["digest"],
            execution=ExecutionKey(row["tenant"], row["execution_id"]),
            revision=row["revision"],
            body=row["body"],
            changes=row["changes"],
            outgoing=row["outgoing"],
        )
        for row in rows
    }


async def known_refusals(
    connection: Connection, records: Sequence[ReceivedRecord]
) -> dict[tuple[Topic, int, int], Refusal]:
    """Return why those of `records` that were refused before were refused, by topic, partition and offset."""
    by_place = {(record.topic, record.partition, record.offset): record for record in records}
    rows = await connection.fetch(
        _QUERIES["known_rejections"],
        [record.topic.value for record in records],
        [record.partition for record in records],
        [record.offset for record in records],
        [record.timestamp_ms for record in records],
    )
    places = ((Topic(row["topic"]), row["partition"], row["record_offset"]) for row in rows)
    return {
        place: Refusal(by_place[place], row["code"], row["message"]) for place, row in zip(places, rows, strict=True)
    }


async def entries_at(
    connection: Connection, revisions: Mapping[ExecutionKey, int]
) -> dict[ExecutionKey, dict[str, bytes]]:
    """Rebuild the entries of executions as they were at these revisions, by replaying their changes."""
    rows = await connection.fetch(_QUERIES["changes_of"], *_columns(revisions), list(revisions.values()))
    entries: defaultdict[ExecutionKey, dict[str, bytes]] = defaultdict(dict)
    for row in rows:
        apply_changes(entries[ExecutionKey(row["tenant"], row["execution_id"])], decode_changes(row["changes"]))
    return {execution: entries[execution] for execution in revisions}


async def hold_revision(connection: Connection, execution: ExecutionKey, revision: int) -> bool:
    """Say whether the execution has got as far as `revision`, and keep it from being deleted meanwhile."""
    found = await connection.fetchval(_QUERIES["hold_revision"], execution.tenant, execution.execution_id, revision)
    return found is not None


async def inherit_revisions(connection: Connection, forks: Sequence[Inheritance]) -> None:
    """Give forks the revisions of their sources. Raises `RuntimeError` when one is not there."""
    copied = await connection.fetchval(
        _QUERIES["inherit_revisions"],
        *_columns(fork.execution for fork in forks),
        [fork.source_id for fork in forks],
        [fork.revisions for fork in forks],
        [fork.before for fork in forks],
    )
    if copied != sum(fork.revisions for fork in forks):
        raise RuntimeError(f"forks inherited {copied} revisions: {forks}")


async def write_batch(
    connection: Connection,
    group: str,
    *,
    now: datetime,
    heads: Sequence[HeadRow],
    revisions: Sequence[RevisionRow],
    refusals: Sequence[Refusal],
    positions: Mapping[Lane, int],
) -> None:
    """Write all of a batch in one statement. Raises `RuntimeError` when a row that must be there is not."""
    row = await connection.fetchrow(
        _QUERIES["write_batch"],
        now,
        *_columns(head.execution for head in heads),
        [head.revision for head in heads],
        [head.status for head in heads],
        [head.head for head in heads],
        [head.workflow for head in heads],
        [head.parent_execution_id for head in heads],
        *_columns(revision.execution for revision in revisions),
        [revision.revision for revision in revisions],
        [revision.event_key for revision in revisions],
        [revision.digest for revision in revisions],
        [revision.body for revision in revisions],
        [revision.changes for revision in revisions],
        [revision.outgoing for revision in revisions],
        [refusal.record.topic.value for refusal in refusals],
        [refusal.record.partition for refusal in refusals],
        [refusal.record.offset for refusal in refusals],
        [refusal.record.timestamp_ms for refusal in refusals],
        [refusal.code for refusal in refusals],
        [refusal.message for refusal in refusals],
        group,
        [topic.value for topic, _ in positions],
        [partition for _, partition in positions],
        list(positions.values()),
        [head.unpublished_from for head in heads],
    )
    expected = (len(heads), len(revisions), len(refusals), len(positions))
    if row is None or tuple(row.values()) != expected:
        raise RuntimeError(f"a batch of {expected} heads, revisions, refusals, positions wrote {row}")


async def note_published(connection: Connection, revisions: Mapping[ExecutionKey, int]) -> None:
    """Note that executions are published up to these revisions, where they are the newest."""
    await connection.execute(_QUERIES["note_published"], *_columns(revisions), list(revisions.values()))


async def drop_unused(connection: Connection, executions: Collection[ExecutionKey]) -> None:
    """Take back the rows that `open_executions` made for executions of which nothing was recorded."""
    await connection.execute(_QUERIES["drop_unused_rows"], *_columns(executions))


async def database_now(connection: Connection) -> datetime:
    """Return the database's clock."""
    now: datetime = await connection.fetchval(_QUERIES["database_now"])
    return now


def _columns(executions: Iterable[ExecutionKey]) -> tuple[list[str], list[str]]:
    keys = list(executions)
    return [key.tenant for key in keys], [key.execution_id for key in keys]
