"""The typed face of the memory tables: one method for each query, values of the logic in and out, no rule inside."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import starmap
from operator import attrgetter
from typing import NamedTuple
from uuid import UUID

import asyncpg
from msgspec.structs import astuple

from topics.catalog import Topic
from workers.logic.memory.conversations import RECORD_TYPE
from workers.logic.memory.items import Item, Version
from workers.runtime.postgres import Connection
from workers.runtime.queries import load_queries

_QUERIES = load_queries(__file__)
_TOPIC = Topic.MEMORY_COMMANDS.value


class StoredOutcome(NamedTuple):
    """What a command came to, as it was and will be published: the bytes of the events."""

    command_key: UUID
    digest: bytes
    address: str | None
    reply_key: str
    outcome: bytes
    conflict: bytes | None


class Move(NamedTuple):
    """A fence: where this worker left a partition, and where the batch ends."""

    partition: int
    left_at: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class Writes:
    """What a batch writes, and what must still be as it was read."""

    now: datetime
    items: Mapping[str, Item]
    #: Address -> the sequence at which an item of `items` was read.
    read_sequences: Mapping[str, int]
    #: Address -> the sequence at which an item must still be that was neither read nor changed, only remembered.
    relied_on: Mapping[str, int]
    replaced: Sequence[Version]
    outcomes: Sequence[StoredOutcome]
    #: Address -> the version up to which the sweep is to delete its history.
    erased: Mapping[str, int]
    group: str
    moves: Sequence[Move]


class Expired(NamedTuple):
    """An entry of the history whose retention is over."""

    address: str
    version: int


async def add_positions(connection: Connection, group: str, partitions: Sequence[int]) -> None:
    """Give partitions their fence rows."""
    await connection.execute(_QUERIES["add_positions"], group, _TOPIC, partitions)


async def read_positions(connection: Connection, group: str, partitions: Sequence[int]) -> dict[int, int]:
    """Return the next offset of each partition."""
    rows = await connection.fetch(_QUERIES["read_positions"], group, _TOPIC, partitions)
    return {row["partition"]: row["next_offset"] for row in rows}


async def add_items(connection: Connection, addresses: Sequence[str]) -> None:
    """Give addresses rows that can be changed."""
    await connection.execute(_QUERIES["add_items"], addresses)


async def lock_items(connection: Connection, addresses: Sequence[str]) -> None:
    """Lock the rows of addresses, in order, until the transaction ends."""
    await connection.execute(_QUERIES["lock_items"], addresses)


async def lock_unlocked_items(connection: Connection, addresses: Sequence[str]) -> dict[str, Item]:
    """Lock those rows that nobody else has locked, and return them."""
    return _by_address(await connection.fetch(_QUERIES["lock_unlocked_items"], addresses))


async def read_newer(connection: Connection, published: Iterable[Item]) -> list[Item]:
    """Return the items that changed since what was published of them."""
    rows = await connection.fetch(_QUERIES["read_newer"], *_columns([(i.address, i.sequence) for i in published], 2))
    return list(starmap(Item, rows))


async def read_known(connection: Connection, keys: Sequence[UUID]) -> tuple[datetime, dict[UUID, StoredOutcome]]:
    """Return the clock, and the outcomes of commands that were decided before. Only before their items are read."""
    rows = await connection.fetch(_QUERIES["read_known"], keys)
    found = [StoredOutcome(*row[1:]) for row in rows if row[1] is not None]
    return rows[0]["now"], {outcome.command_key: outcome for outcome in found}


async def read_bases(connection: Connection, wanted: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Version]:
    """Return entries of the history by (address, version)."""
    rows = await connection.fetch(_QUERIES["read_bases"], *_columns(wanted, 2))
    return {(version.address, version.version): version for version in starmap(Version, rows)}


async def write_batch(connection: Connection, writes: Writes) -> None:
    """Write a batch whole, or nothing where it was overtaken (a serialization failure)."""
    items = sorted(writes.items.values(), key=attrgetter("address"))
    await connection.execute(
        _QUERIES["write_batch"],
        writes.now,
        *_changed_columns(items, writes.read_sequences),
        RECORD_TYPE,
        *_replaced_columns(writes.replaced),
        *_columns(writes.outcomes, len(StoredOutcome._fields)),
        list(writes.erased.keys()),
        list(writes.erased.values()),
        writes.group,
        _TOPIC,
        *_columns(writes.moves, len(Move._fields)),
        list(writes.relied_on.keys()),
        list(writes.relied_on.values()),
    )


def _changed_columns(items: Sequence[Item], read_sequences: Mapping[str, int]) -> list[Sequence[object]]:
    """Return what the statement takes of items; it knows what changed them, and when."""
    columns = _columns(map(astuple, items), len(Item.__struct_fields__))
    addresses, *state, _change, _changed_at, changed_by, expires_at, traceparent = columns
    read_at = [read_sequences[item.address] for item in items]
    return [addresses, read_at, *state, changed_by, expires_at, traceparent]


def _replaced_columns(versions: Iterable[Version]) -> list[Sequence[object]]:
    *columns, _written_at, expires_at, command_key = _columns(versions, len(Version._fields))
    return [*columns, expires_at, command_key]


async def note_erasures(connection: Connection, erased: Mapping[str, int]) -> None:
    """Let the sweep delete histories up to a version."""
    await connection.execute(_QUERIES["note_erasures"], list(erased.keys()), list(erased.values()))


async def find_expired(connection: Connection, limit: int, skipped: int) -> tuple[datetime | None, list[Expired]]:
    """Return the clock and the entries of the history whose time is over, after the first `skipped` ones."""
    rows = await connection.fetch(_QUERIES["find_expired"], limit, skipped)
    return (rows[0]["now"] if rows else None), [Expired(row["address"], row["version"]) for row in rows]


async def expire_items(connection: Connection, items: Sequence[Item]) -> None:
    """Write items that expired, and note their changes as not published yet."""
    rows = [(i.address, i.sequence, i.previous_version, i.erased_version, i.changed_at, i.changed_by) for i in items]
    await connection.execute(_QUERIES["expire_items"], *_columns(rows, 6))


async def delete_versions(connection: Connection, versions: Sequence[Expired]) -> None:
    """Delete entries of the history."""
    await connection.execute(_QUERIES["delete_versions"], *_columns(versions, 2))


async def read_unpublished(connection: Connection, limit: int) -> list[Item]:
    """Return items with changes that wait to be published."""
    return list(starmap(Item, await connection.fetch(_QUERIES["read_unpublished"], limit)))


async def delete_unpublished(connection: Connection, published: Sequence[Item]) -> None:
    """Note that the changes of these items are acknowledged."""
    rows = [(item.address, item.sequence) for item in published]
    await connection.execute(_QUERIES["delete_unpublished"], *_columns(rows, 2))


async def erase_history(connection: Connection, limit: int) -> tuple[int, int]:
    """Delete a step of what forget and expiry left of histories; return how many entries, how many items are done."""
    deleted = _count(await connection.execute(_QUERIES["erase_history"], limit))
    return deleted, _count(await connection.execute(_QUERIES["finish_erasures"], limit))


async def delete_outcomes(connection: Connection, older_than: timedelta, limit: int) -> int:
    """Delete a step of the outcomes that nobody can ask for again; return how many."""
    return _count(await connection.execute(_QUERIES["delete_outcomes"], older_than, limit))


def _by_address(rows: Sequence[asyncpg.Record]) -> dict[str, Item]:
    return {item.address: item for item in starmap(Item, rows)}


def _columns(rows: Iterable[tuple[object, ...]], width: int) -> list[Sequence[object]]:
    """Turn rows into the arrays that `unnest` takes."""
    return [*zip(*rows, strict=True)] or [()] * width


def _count(status: str) -> int:
    """Return the number in a status such as `DELETE 12`."""
    return int(status.rsplit(" ", 1)[-1])
