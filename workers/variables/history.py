"""The read side: executions at any revision, from PostgreSQL alone. The API and the command line ask here."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import cast
from uuid import UUID

import asyncpg

from schemas.exact_json import JsonObject, loads
from topics.records import Record
from workers.logic.variables.state import ExecutionKey
from workers.runtime.postgres import Connection
from workers.runtime.queries import load_queries
from workers.variables.rows import apply_changes, decode_changes, decode_outgoing

_QUERIES = load_queries(__file__, "history.sql")
#: Greater than any revision.
_NEWEST = 2**62


@dataclass(frozen=True, slots=True)
class ExecutionSummary:
    """An execution as lists show it. `seen_at` is when its first event came, `started_at` when it was started."""

    key: ExecutionKey
    revision: int
    status: str
    workflow: str | None
    parent_execution_id: str | None
    seen_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class RevisionDetail:
    """One revision. `body` is its public part (cause, reads, late), `changes` the entries (None: deleted).

    Without an `event_key` a fork inherited it: an event of its source made it.
    """

    revision: int
    event_key: UUID | None
    applied_at: datetime
    body: JsonObject
    changes: Mapping[str, bytes | None]
    outgoing: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class StoreAt:
    """A whole store as it was after `revision`: entry -> JSON bytes."""

    revision: int
    entries: Mapping[str, bytes]


async def store_at(connection: Connection, key: ExecutionKey, revision: int | None = None) -> StoreAt | None:
    """Return the store at `revision`, the newest without one; None when the execution or revision does not exist."""
    upto = _NEWEST if revision is None else revision
    entries: dict[str, bytes] = {}
    found = 0
    for row in await connection.fetch(_QUERIES["changes_up_to"], key.tenant, key.execution_id, min(upto, _NEWEST)):
        apply_changes(entries, decode_changes(row["changes"]))
        found = row["revision"]
    if found == 0 or (revision is not None and found != revision):
        return None
    return StoreAt(found, entries)


async def list_executions(
    connection: Connection,
    tenant: str,
    *,
    status: str | None = None,
    workflow: str | None = None,
    after: ExecutionSummary | None = None,
    limit: int = 50,
) -> list[ExecutionSummary]:
    """Return a page, newest first; `after` is the last execution of the page before."""
    rows = await connection.fetch(
        _QUERIES["list_executions"],
        tenant,
        status,
        workflow,
        None if after is None else after.seen_at,
        None if after is None else after.key.execution_id,
        limit,
    )
    return [_summary(row) for row in rows]


async def execution(connection: Connection, key: ExecutionKey) -> ExecutionSummary | None:
    """Return one execution's summary, None when nothing of it was ever recorded."""
    row = await connection.fetchrow(_QUERIES["one_execution"], key.tenant, key.execution_id)
    return None if row is None else _summary(row)


async def children(connection: Connection, key: ExecutionKey) -> list[ExecutionSummary]:
    """Return the sub-executions of an execution, oldest first."""
    return [_summary(row) for row in await connection.fetch(_QUERIES["children_of"], key.tenant, key.execution_id)]


async def revisions(
    connection: Connection, key: ExecutionKey, *, after: int = 0, limit: int = 200
) -> list[RevisionDetail]:
    """Return a page of an execution's revisions, oldest first; `after` is the last revision of the page before."""
    rows = await connection.fetch(_QUERIES["list_revisions"], key.tenant, key.execution_id, after, limit)
    return [
        RevisionDetail(
            revision=row["revision"],
            event_key=row["event_key"],
            applied_at=row["applied_at"],
            body=cast("JsonObject", loads(row["body"])),
            changes=dict(decode_changes(row["changes"])),
            outgoing=tuple(decode_outgoing(row["outgoing"])),
        )
        for row in rows
    ]


async def is_applied(connection: Connection, key: ExecutionKey, event_key: UUID) -> bool:
    """Say whether an event has made a revision of the execution."""
    applied: bool = await connection.fetchval(_QUERIES["is_applied"], key.tenant, key.execution_id, event_key)
    return applied


def _summary(row: asyncpg.Record) -> ExecutionSummary:
    return ExecutionSummary(
        key=ExecutionKey(row["tenant"], row["execution_id"]),
        revision=row["revision"],
        status=row["status"],
        workflow=row["workflow"],
        parent_execution_id=row["parent_execution_id"],
        seen_at=row["seen_at"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        updated_at=row["updated_at"],
    )
