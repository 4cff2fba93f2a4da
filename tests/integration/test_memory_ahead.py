"""What a worker of memory takes for granted until it writes: items that it wrote last, batches that are not written yet."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic

import pytest
from msgspec.structs import replace

from schemas.errors import DependencyDown, Fenced
from tests.support.memory_batches import Worker, pass_time, record, with_own_clock
from tests.support.memory_store import RULES, memory_event
from topics.catalog import Topic
from topics.codec import decode
from topics.records import ReceivedRecord
from workers.memory import batch, lookup, store
from workers.memory.batch import Decided
from workers.memory.compose import Committed
from workers.memory.intake import take_in
from workers.runtime.postgres import Connection, Database


async def test_what_a_worker_wrote_last_is_not_read_again(opened: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(opened)
    await worker.apply(record(memory_event("memory.write", type="Json", value={"n": 1}), 0))

    async def never(*_: object) -> None:
        raise AssertionError("the item was at hand")

    monkeypatch.setattr(lookup, "read_items", never)
    written = await worker.apply(
        record(memory_event("memory.write", type="Json", value={"n": 2}, expected_version=1), 1),
        record(memory_event("memory.write", type="Json", value={"n": 3}, expected_version=1), 2),
    )

    assert [conflict["current_version"] for conflict in written.conflicts] == [2]


async def test_nothing_is_refused_for_what_others_have_changed_since(opened: Database) -> None:
    """The worker remembers version 1; the writer has read version 2, which another worker wrote."""
    worker, other = Worker(opened), Worker(opened)
    await worker.apply(record(memory_event("memory.write", type="Integer", value=1), 0))
    await other.apply(replace(record(memory_event("memory.write", type="Integer", value=2), 1), partition=1))

    write = record(memory_event("memory.write", type="Integer", value=3, expected_version=2), 2)
    with pytest.raises(Fenced, match="someone else changed 1 of 1 items"):
        await worker.apply(write)
    committed = await worker.apply(write)

    assert (committed.applied, committed.conflicts) == (1, [])


async def test_a_read_shows_what_others_have_written(opened: Database) -> None:
    worker, other = Worker(opened), Worker(opened)
    await worker.apply(record(memory_event("memory.write", type="Integer", value=1), 0))
    await other.apply(replace(record(memory_event("memory.write", type="Integer", value=2), 1), partition=1))

    committed = await worker.apply(record(memory_event("memory.read", type="Integer"), 2))

    (found,) = committed.outgoing
    assert decode(found.value).data["value"] == 2


class Pipeline(Worker):
    """Decides a second batch while the first one is written, which fails as often as there are `failures`."""

    async def apply_both(
        self,
        first: Sequence[ReceivedRecord],
        second: Sequence[ReceivedRecord],
        *failures: Callable[[], Awaitable[None]],
        before_second: Callable[[], Awaitable[None]] | None = None,
    ) -> Committed:
        """Return what the second batch came to; `before_second` runs when it is decided and waits for its turn."""
        taken = take_in(second, RULES)
        deciding: list[asyncio.Task[Decided | None]] = []
        left = list(failures)
        plain = store.write_batch

        async def write_late(connection: Connection, writes: store.Writes) -> None:
            await deciding[0]
            if left:
                await left.pop(0)()
                raise DependencyDown("PostgreSQL", "here", "it was restarted")
            await plain(connection, writes)

        def decide_second() -> None:
            if not deciding:
                deciding.append(asyncio.create_task(self.batches.decide_ahead(taken, {})))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "write_batch", write_late)
            for _ in failures:
                with pytest.raises(DependencyDown):
                    await self.batches.apply(take_in(first, RULES), {}, on_decided=decide_second)
            await self.batches.apply(take_in(first, RULES), {}, on_decided=decide_second)
        ahead = deciding[0].result()
        assert ahead is not None
        if before_second is not None:
            await before_second()
        return await self.batches.apply(taken, {}, ahead=ahead)


async def test_a_batch_that_was_decided_ahead_shows_a_base_that_was_not_written_yet(opened: Database) -> None:
    worker = Pipeline(opened)
    await worker.apply(record(memory_event("memory.write", type="Json", value={"n": 0}), 0))

    committed = await worker.apply_both(
        [record(memory_event("memory.write", type="Json", value={"n": number}), number) for number in (1, 2)],
        [record(memory_event("memory.write", type="Json", value={"n": 9}, expected_version=2), 3)],
    )

    (conflict,) = committed.conflicts
    published = next(decode(out.value) for out in committed.outgoing if out.topic is Topic.MEMORY_CONFLICTS)
    assert published.data["base"]["value"] == {"n": 1}  # type: ignore[index,call-overload]
    assert conflict["current_version"] == 3


async def test_what_was_decided_on_a_batch_that_came_out_otherwise_is_decided_again(opened: Database) -> None:
    worker, other = Pipeline(opened), Worker(opened)
    await worker.apply(record(memory_event("memory.read", type="String"), 0))

    async def be_overtaken() -> None:
        theirs = memory_event("memory.write", type="String", value="theirs")
        await other.apply(replace(record(theirs, 1), partition=1))

    committed = await worker.apply_both(
        [record(memory_event("memory.write", type="String", value="ours", expected_version=0), 1)],
        [record(memory_event("memory.read", type="String"), 2)],
        be_overtaken,
    )

    (found,) = committed.outgoing
    assert decode(found.value).data["value"] == "theirs"


async def test_a_batch_that_waited_long_for_its_turn_is_decided_again(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile the item has expired, which readers have seen: it is not counted up."""
    async with with_own_clock(database) as opened:
        worker = Pipeline(opened)
        await worker.apply(record(memory_event("memory.read", type="Integer"), 0))

        async def wait_for_kafka() -> None:
            await pass_time(opened, 60)
            long_after = monotonic() + 60
            monkeypatch.setattr(batch, "monotonic", lambda: long_after)

        count = {"type": "Integer", "operation": "increment", "by": 1, "ttl": 30, "ttl_unit": "seconds"}
        committed = await worker.apply_both(
            [record(memory_event("memory.update", **count), 1)],
            [record(memory_event("memory.update", **count), 2)],
            before_second=wait_for_kafka,
        )

    updated, changed = (decode(out.value) for out in committed.outgoing)
    assert updated.data["value"] == 1
    assert changed.data["previous_version"] == 0
