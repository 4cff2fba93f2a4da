"""Batches on PostgreSQL, without Kafka: fences, replays, and what the tables refuse."""

import asyncio
from datetime import timedelta
from itertools import count
from unittest.mock import AsyncMock

import asyncpg
import pytest
from msgspec.structs import replace

from schemas.errors import Fenced
from tests.support.memory_batches import RETENTION, Worker, record
from tests.support.memory_store import ADDRESS, RULES, memory_event
from topics.catalog import Topic
from topics.codec import decode
from topics.records import ReceivedRecord
from workers.logic.memory.items import Item
from workers.memory import store
from workers.memory.batch import MemoryBatches
from workers.memory.compose import Committed
from workers.memory.intake import take_in
from workers.memory.publication import Publication
from workers.memory.sweep import Sweep
from workers.runtime.health import Health
from workers.runtime.postgres import Connection, Database


async def _rows(database: Database, query: str) -> list[asyncpg.Record]:
    async with database.session() as connection:
        return await connection.fetch(query)


async def test_a_batch_that_comes_again_publishes_the_same_bytes(opened: Database) -> None:
    records = [
        record(memory_event("memory.write", type="Json", value={"a": 1}), 0),
        record(memory_event("memory.write", type="Json", value={"a": 2}, expected_version=0), 1),
        record(memory_event("memory.read", type="Json"), 3),
        record(memory_event("memory.write", key="other", type="Json", value="x"), 4),
        record(memory_event("memory.forget"), 7),
    ]
    first = await Worker(opened).apply(*records)

    again = await Worker(opened).apply(*records)

    assert (first.applied, again.applied, again.replayed) == (5, 0, 5)
    kept = {(out.topic, out.key, out.value) for out in first.outgoing}
    assert {(out.topic, out.key, out.value) for out in again.outgoing} <= kept
    results = [out.value for out in first.outgoing if out.topic is Topic.MEMORY_RESULTS]
    assert [out.value for out in again.outgoing if out.topic is Topic.MEMORY_RESULTS] == results


async def test_a_replay_does_not_lay_an_old_state_over_a_newer_one(opened: Database) -> None:
    old = record(memory_event("memory.write", type="Integer", value=1), 0)
    new = record(memory_event("memory.write", type="Integer", value=2), 1)
    worker = Worker(opened)
    await worker.apply(old)
    await worker.apply(new)

    for again in ([old], [old, new], [new, old]):
        committed = await Worker(opened).apply(*again)
        changes = [decode(out.value) for out in committed.outgoing if out.topic is Topic.MEMORY_CHANGES]
        assert [change.data["value"] for change in changes] == [2]


async def test_a_replay_beside_a_new_change_shows_the_new_one_last(opened: Database) -> None:
    old = record(memory_event("memory.write", type="Integer", value=1), 0)
    await Worker(opened).apply(old)

    new = record(memory_event("memory.write", type="Integer", value=2), 1)
    committed = await Worker(opened).apply(new, old)
    changes = [decode(out.value) for out in committed.outgoing if out.topic is Topic.MEMORY_CHANGES]
    assert [change.data["value"] for change in changes] == [2]

    newest = record(memory_event("memory.write", type="Integer", value=3), 2)
    committed = await Worker(opened).apply(old, newest)
    changes = [decode(out.value) for out in committed.outgoing if out.topic is Topic.MEMORY_CHANGES]
    assert [change.data["value"] for change in changes] == [2, 3]


async def test_a_worker_whose_partition_another_moved_rolls_back_and_looks_again(opened: Database) -> None:
    zombie, successor = Worker(opened), Worker(opened)
    events = [memory_event("memory.update", type="Integer", operation="increment") for _ in range(3)]
    await zombie.apply(record(events[0], 0))
    await successor.apply(record(events[1], 1))

    with pytest.raises(Fenced, match=r"one_outcome_per_command|someone else changed 1 of 1"):
        await zombie.apply(record(events[1], 1), record(events[2], 2))
    committed = await zombie.apply(record(events[1], 1), record(events[2], 2))

    assert (committed.applied, committed.replayed) == (1, 1)
    (item,) = await _rows(opened, "SELECT version FROM memory_items")
    assert item["version"] == 3


async def test_a_worker_that_was_overtaken_on_its_position_alone_writes_nothing(opened: Database) -> None:
    zombie, successor = Worker(opened), Worker(opened)
    await zombie.apply(record(memory_event("memory.read", type="Integer"), 0))
    await successor.apply(record(memory_event("memory.read", type="Integer"), 1))

    with pytest.raises(Fenced, match="someone else changed 1 of 1 positions"):
        await zombie.apply(record(memory_event("memory.read", type="Integer"), 2))

    (found,) = await _rows(opened, "SELECT count(*) AS outcomes FROM memory_outcomes")
    assert found["outcomes"] == 2


async def until_applied(worker: Worker, theirs: ReceivedRecord) -> Committed:
    while True:
        try:
            return await worker.apply(theirs)
        except Fenced:
            continue


class Overtaken(MemoryBatches):
    """Lets another worker have its way between deciding and writing."""

    async def apply_after(self, other: Worker, theirs: ReceivedRecord, ours: ReceivedRecord) -> Committed:
        meanwhile: list[asyncio.Task[Committed]] = []
        plain = store.write_batch

        async def overtaken(connection: Connection, writes: store.Writes) -> None:
            if not meanwhile:
                meanwhile.append(asyncio.create_task(until_applied(other, theirs)))
                # Under locks the other one waits for us.
                await asyncio.wait(meanwhile, timeout=0.5)
            await plain(connection, writes)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "write_batch", overtaken)
            try:
                return await self.apply(take_in([ours], RULES), {})
            finally:
                await meanwhile[0]


async def test_a_batch_that_was_overtaken_is_decided_again_and_then_cannot_be(opened: Database) -> None:
    ours = Overtaken(
        opened, RULES, group="test.memory", outcome_retention=RETENTION, log_ends=AsyncMock(return_value={})
    )
    other = Worker(opened)
    numbers = count()

    def write() -> ReceivedRecord:
        """In a partition of its own, as records without a key are: only the item is shared."""
        event = memory_event("memory.update", type="Integer", operation="increment")
        return replace(record(event, next(numbers)), partition=next(numbers))

    await other.apply(write())
    lost = write()
    with pytest.raises(Fenced, match=r"someone else changed 1 of 1 items|one_row_per_version"):
        await ours.apply_after(other, write(), lost)
    again = await ours.apply_after(other, write(), lost)

    assert (again.applied, again.replayed) == (1, 0)
    versions = await _rows(opened, "SELECT version, value FROM memory_versions ORDER BY version")
    assert [(row["version"], row["value"]) for row in versions] == [(n, str(n).encode()) for n in (1, 2, 3, 4)]
    (outcomes,) = await _rows(
        opened, "SELECT count(*) AS all, count(DISTINCT command_key) AS keys FROM memory_outcomes"
    )
    assert (outcomes["all"], outcomes["keys"]) == (4, 4)


async def test_a_topic_that_was_made_anew_is_applied_from_its_start(opened: Database) -> None:
    await Worker(opened).apply(record(memory_event("memory.write", type="Integer", value=1), 5000))

    committed = await Worker(opened).apply(
        record(memory_event("memory.write", type="Integer", value=2), 0, age=timedelta(days=30)), log_end=1
    )

    assert committed.applied == 1
    (position,) = await _rows(opened, "SELECT next_offset FROM consumer_positions")
    assert position["next_offset"] == 1


async def test_a_command_whose_outcome_was_deleted_long_ago_is_not_applied_again(opened: Database) -> None:
    old = record(memory_event("memory.update", type="Integer", operation="increment"), 0, age=timedelta(days=9))
    await Worker(opened).apply(old)
    await _rows(opened, "UPDATE memory_outcomes SET decided_at = decided_at - interval '9 days'")
    async with opened.session() as connection:
        assert await store.delete_outcomes(connection, RETENTION, 100) == 1

    again = await Worker(opened).apply(old)

    assert (again.applied, [letter.code for letter in again.letters]) == (0, ["outcome_expired"])
    (item,) = await _rows(opened, "SELECT version FROM memory_items")
    assert item["version"] == 1


async def test_rows_that_a_restore_took_away_are_made_again(opened: Database) -> None:
    worker = Worker(opened)
    await worker.apply(record(memory_event("memory.write", type="Integer", value=1), 0))
    await _rows(opened, "TRUNCATE memory_items, memory_versions, memory_outcomes")

    with pytest.raises(Fenced):
        await worker.apply(record(memory_event("memory.write", type="Integer", value=2), 1))
    committed = await worker.apply(record(memory_event("memory.write", type="Integer", value=2), 1))

    assert committed.applied == 1


async def test_an_address_many_times_in_a_batch_leaves_every_version_in_its_history(opened: Database) -> None:
    writes = [record(memory_event("memory.write", type="Integer", value=number), number) for number in range(5)]
    talk = record(memory_event("conversation.add", id="s-1", role="user", content="hello"), 5)

    await Worker(opened).apply(*writes, talk)

    history = await _rows(opened, "SELECT * FROM memory_history ORDER BY address, version")
    assert [(row["version"], row["value"]) for row in history] == [
        *((number + 1, str(number).encode()) for number in range(5)),
        (1, None),
    ]


async def test_the_base_of_a_race_comes_from_the_history(opened: Database) -> None:
    worker = Worker(opened)
    for number in range(3):
        await worker.apply(record(memory_event("memory.write", type="Json", value={"n": number}), number))

    committed = await worker.apply(
        record(memory_event("memory.write", "late", "run-2", type="Json", value={"m": 1}, expected_version=1), 3)
    )

    (conflict,) = committed.conflicts
    assert conflict["base"]["version"] == 1  # type: ignore[index,call-overload]
    published = next(decode(out.value) for out in committed.outgoing if out.topic is Topic.MEMORY_CONFLICTS)
    assert published.data["base"]["value"] == {"n": 0}  # type: ignore[index,call-overload]


async def test_no_value_can_be_stored_without_its_expiry(opened: Database) -> None:
    """dapr#3833."""
    with pytest.raises(asyncpg.CheckViolationError, match="every_value_expires"):
        await _rows(
            opened,
            "INSERT INTO memory_items (address, version, sequence, type, value, change, changed_at)"
            " VALUES ('a', 1, 1, 'Json', '1', 'written', now())",
        )


_OFFSETS = count()


async def test_a_listing_by_prefix_has_no_neighbours(opened: Database) -> None:
    worker = Worker(opened)
    for workflow in ("support", "support-2", "suppor", "support/x"):
        await worker.apply(
            record(
                memory_event("conversation.add", workflow=workflow, id="s", role="user", content="x"), next(_OFFSETS)
            )
        )

    committed = await worker.apply(record(memory_event("conversation.get_all", workflow="support"), next(_OFFSETS)))

    outcome = decode(committed.outgoing[0].value)
    assert (outcome.data["count"], outcome.data["total"]) == (1, 1)


async def test_expired_items_leave_no_value_behind_and_are_noted_until_published(opened: Database) -> None:
    worker = Worker(opened)
    await worker.apply(record(memory_event("memory.write", type="String", value="old"), 0))
    await worker.apply(record(memory_event("memory.write", type="String", value="x", ttl=1, ttl_unit="seconds"), 1))
    await _rows(
        opened,
        "WITH i AS (UPDATE memory_items SET expires_at = now() - interval '1 s')"
        "UPDATE memory_versions SET expires_at = now() - interval '1 s' WHERE version = 2",
    )

    stop = asyncio.Event()
    health = Health("memory")
    publication = Publication(opened, None, health=health, stop=stop)  # type: ignore[arg-type]
    sweep = Sweep(opened, publication, health=health, stop=stop, outcome_retention=RETENTION)
    assert await sweep._expire(0) == (1, 0)

    async with opened.session() as connection:
        (item,) = await store.read_unpublished(connection, 10)
        assert await store.erase_history(connection, 10) == (1, 1)
    assert isinstance(item, Item)
    assert (item.address, item.value, item.version, item.change) == (ADDRESS, None, 2, "expired")
    assert await _rows(opened, "SELECT * FROM memory_versions UNION ALL SELECT * FROM memory_history") == []
    assert await _rows(opened, "SELECT * FROM memory_erasures") == []


async def test_histories_are_erased_in_small_steps_and_no_newer_version_with_them(opened: Database) -> None:
    worker = Worker(opened)
    keys = ["a", "b", "c"]
    writes = [memory_event("memory.write", key=key, type="Integer", value=n) for key in keys for n in range(3)]
    forgets = [memory_event("memory.forget", key=key) for key in keys]
    again = memory_event("memory.write", key="b", type="Integer", value=9)
    for events in (writes, [*forgets, again]):
        await worker.apply(*(record(event, next(_OFFSETS)) for event in events))
    await _rows(opened, "INSERT INTO memory_erasures VALUES ('default/nothing/left', 7)")

    steps = []
    async with opened.session() as connection:
        while any(step := await store.erase_history(connection, 2)):
            steps.append(step)

    assert all(deleted <= 2 and struck <= 2 for deleted, struck in steps)
    assert [sum(column) for column in zip(*steps, strict=True)] == [9, 4]
    kept = await _rows(opened, "SELECT address, version, value FROM memory_versions")
    assert [(row["address"].rsplit("/", 1)[-1], row["version"], row["value"]) for row in kept] == [("b", 4, b"9")]
    assert await _rows(opened, "SELECT FROM memory_erasures") == []
