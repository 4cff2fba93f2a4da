"""The same random commands and the same plain model as for the pure plan, over real batches and real tables.

The database's clock is ours: `clock_timestamp` is found in a schema of the test before PostgreSQL's own.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import TypeVar
from unittest.mock import AsyncMock

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from schemas.envelope import Event
from schemas.exact_json import loads
from tests.support.memory_batches import RETENTION, pass_time, with_own_clock
from tests.support.memory_machine import MemoryMachine, Row, Told, name_of
from tests.support.memory_store import RULES
from topics.catalog import Topic
from topics.codec import decode, encode
from topics.records import ReceivedRecord, Record
from workers.logic.memory.plan import Seen
from workers.memory import batch, store
from workers.memory.batch import Decided, MemoryBatches
from workers.memory.compose import Committed
from workers.memory.intake import take_in
from workers.memory.publication import Publication
from workers.memory.sweep import Sweep
from workers.runtime.health import Health
from workers.runtime.postgres import Connection, Database

_Found = TypeVar("_Found")


class PostgresMemory:
    """The memory worker's batches and sweep, without Kafka. One for all examples: each has a workflow of its own."""

    def __init__(self, database: Database, loop: asyncio.AbstractEventLoop) -> None:
        self.second = 0
        self.workflow = ""
        self._examples = 0
        self.decided_ahead = 0
        self._loop = loop
        self._database = database
        self._offset = 0
        self._batches = MemoryBatches(
            database, RULES, group="test.memory", outcome_retention=RETENTION, log_ends=AsyncMock(return_value={})
        )
        #: Command -> its outcome and conflict, byte for byte.
        self._published: dict[str, list[bytes]] = {}
        stop, health = asyncio.Event(), Health("memory")
        publication = Publication(database, None, health=health, stop=stop)  # type: ignore[arg-type]
        self._sweep = Sweep(database, publication, health=health, stop=stop, outcome_retention=RETENTION)

    def begin(self) -> "PostgresMemory":
        """Give the memory to the next example."""
        self._examples += 1
        self.workflow = f"w{self._examples}"
        return self

    def run(self, coroutine: Coroutine[object, object, _Found]) -> _Found:
        return self._loop.run_until_complete(coroutine)

    def apply(self, events: Sequence[Event]) -> list[Told | Seen]:
        if not events:
            return []
        records = [
            ReceivedRecord(Topic.MEMORY_COMMANDS, 0, self._offset + place, None, encode(event), (), 0)
            for place, event in enumerate(events)
        ]
        self._offset += len(events)
        committed = self.run(self._commit(records))
        reused = {decode(letter.record.value or b"").data["offset"] for part in committed for letter in part.letters}
        published = _by_command(committed)
        told: list[Told | Seen] = []
        here: set[str] = set()
        for record, event in zip(records, events, strict=True):
            if record.offset in reused:
                told.append(Seen.REUSED)
            elif event.id in here:
                told.append(Seen.IN_BATCH)
            elif event.id in self._published:
                assert published[event.id] == self._published[event.id]
                told.append(Seen.BEFORE)
            else:
                here.add(event.id)
                told.append(_told(published[event.id]))
        self._published.update({command: published[command] for command in here})
        return told

    async def _commit(self, records: Sequence[ReceivedRecord]) -> list[Committed]:
        """Apply records at once, or as two batches of which the second was decided before the first was written."""
        if len(records) < 2 or self._offset % 2:
            return [await self._batches.apply(take_in(records, RULES), {})]
        middle = len(records) // 2
        first, second = take_in(records[:middle], RULES), take_in(records[middle:], RULES)
        deciding: list[asyncio.Task[Decided | None]] = []
        write = store.write_batch

        def decide_the_second() -> None:
            deciding.append(asyncio.create_task(self._batches.decide_ahead(second, {})))

        async def write_then(connection: Connection, writes: store.Writes) -> None:
            await deciding[0]
            await write(connection, writes)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "write_batch", write_then)
            committed = await self._batches.apply(first, {}, on_decided=decide_the_second)
        ahead = deciding[0].result()
        also = await self._batches.apply(second, {}, ahead=ahead)
        if ahead is not None:
            assert also is ahead.composed.committed, "it was written as it was decided ahead"
            self.decided_ahead += 1
        return [committed, also]

    def pass_time(self, seconds: int) -> None:
        self.second += seconds
        self.run(pass_time(self._database, float(seconds)))

    def sweep(self) -> None:
        self.run(self._sweep_once())

    async def _sweep_once(self) -> None:
        await self._sweep._until_done(self._sweep._expire)
        await self._sweep._until_done(self._sweep._erase)

    def rows(self) -> dict[str, Row]:
        below = f"default/workflow/{self.workflow}/%"
        found = {
            name_of(row["address"]): Row(
                row["version"], row["sequence"], loads(row["value"] or b"null"), bool(row["live"]), {}
            )
            for row in self.run(
                self._fetch(
                    "SELECT *, expires_at > clock_timestamp() AS live FROM memory_items WHERE address LIKE $1", below
                )
            )
        }
        for row in self.run(self._fetch(_KEPT, below)):
            kept = found[name_of(row["address"])].kept
            kept[row["version"]] = None if row["value"] is None else loads(row["value"])
        return found

    async def _fetch(self, query: str, *arguments: object) -> list[dict[str, object]]:
        async with self._database.session() as connection:
            return [dict(row) for row in await connection.fetch(query, *arguments)]


#: The view's text, under our clock: the view itself was made with PostgreSQL's.
_KEPT = """
    SELECT v.address, v.version, v.value
      FROM memory_versions AS v
      JOIN memory_items AS i USING (address)
     WHERE v.address LIKE $1 AND v.version > i.erased_version AND v.expires_at > clock_timestamp()
"""


def _by_command(committed: Sequence[Committed]) -> dict[str, list[bytes]]:
    """Return what was published of each command: its outcome, and the race that it met; once, however often."""
    found: dict[str, dict[bytes, None]] = {}
    for record in (record for part in committed for record in part.outgoing):
        if record.topic in (Topic.MEMORY_RESULTS, Topic.MEMORY_CONFLICTS):
            found.setdefault(str(decode(_value(record)).data["command_id"]), {})[_value(record)] = None
    return {command: [*values] for command, values in found.items()}


def _value(record: Record) -> bytes:
    assert record.value is not None, "outcomes and conflicts are no tombstones"
    return record.value


def _told(published: list[bytes]) -> Told:
    outcome, *conflicts = (decode(value) for value in published)
    return Told(outcome.type, outcome.data, conflicts[0].data if conflicts else None)


@pytest.fixture
def memory(database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresMemory]:
    # However slow the machine is.
    monkeypatch.setattr(batch, "_AHEAD_S", 3600)
    with asyncio.Runner() as runner:
        opening = with_own_clock(database)
        yield PostgresMemory(runner.run(opening.__aenter__()), runner.get_loop())
        runner.run(opening.__aexit__(None, None, None))


def test_batches_on_postgres_follow_the_model(memory: PostgresMemory) -> None:
    run_state_machine_as_test(
        lambda: MemoryMachine(memory.begin()), settings=settings(max_examples=100, stateful_step_count=50)
    )
    assert memory.decided_ahead > 50
