"""What is read ahead comes in order, each record once, and is dropped whole."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaConnectionError

from tests.support.memory_store import RULES, memory_event
from topics.codec import encode
from workers.memory.batch import Decided
from workers.memory.intake import Intake
from workers.memory.reading import InFlight, Polled, Reader
from workers.runtime.health import Health

PARTITION = TopicPartition("memory-commands", 0)


class Consumer:
    """Has a log of commands, and gives at most two at once."""

    def __init__(self, records: int) -> None:
        value = encode(memory_event("memory.write", type="Integer", value=1))
        self._log = [
            ConsumerRecord("memory-commands", 0, offset, 0, 0, b"k", value, None, 1, len(value), ())
            for offset in range(records)
        ]
        self.next_offset = 0

    async def getmany(self, *, max_records: int, **_: object) -> Polled:
        await asyncio.sleep(0)
        found = self._log[self.next_offset :][: min(max_records, 2)]
        self.next_offset += len(found)
        return {PARTITION: found} if found else {}

    def assignment(self) -> set[TopicPartition]:
        return {PARTITION}

    def highwater(self, _: TopicPartition) -> int:
        return len(self._log)


class Away(Consumer):
    """Gives one batch, then Kafka is away."""

    async def getmany(self, *, max_records: int, **_: object) -> Polled:
        if self.next_offset:
            raise KafkaConnectionError
        return await super().getmany(max_records=max_records)


class Silent(Consumer):
    """Gives one batch, then nothing comes."""

    async def getmany(self, *, max_records: int, **_: object) -> Polled:
        if self.next_offset:
            await asyncio.Event().wait()
        return await super().getmany(max_records=max_records)


class Deciding:
    """Decides nothing, and takes until it is let go."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.asked: list[int] = []

    async def decide_ahead(self, intake: Intake, _: Mapping[int, int]) -> Decided | None:
        self.asked.append(intake.arrivals[0][0].offset)
        await self.go_on.wait()
        return None


@asynccontextmanager
async def reading(
    consumer: Consumer, deciding: Deciding, in_flight: InFlight, stop: asyncio.Event | None = None
) -> AsyncIterator[Reader]:
    reader = Reader(
        consumer,
        RULES,
        in_flight,
        deciding.decide_ahead,
        batch_size=2,
        servers="here",
        health=Health("memory"),
        stop=asyncio.Event() if stop is None else stop,
    )
    try:
        yield reader
    finally:
        await reader.drop()


async def settled() -> None:
    """Let everything run that can."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_batch_is_understood_while_the_one_before_it_is_decided_and_no_further_one() -> None:
    consumer, deciding = Consumer(10), Deciding()
    async with reading(consumer, deciding, InFlight()) as reader:
        reader.read_on()
        await settled()

        assert deciding.asked == [0]
        assert consumer.next_offset == 4


async def test_batches_come_in_order_and_each_is_decided() -> None:
    consumer, deciding = Consumer(7), Deciding()
    deciding.go_on.set()
    seen: list[int] = []
    async with reading(consumer, deciding, InFlight()) as reader:
        for _ in range(4):
            batch = await reader.next()
            assert batch is not None
            seen += [record.offset for record, _ in batch.intake.arrivals]

        assert await reader.next() is None

    assert seen == [0, 1, 2, 3, 4, 5, 6]
    assert deciding.asked == [0, 2, 4]


async def test_what_was_read_ahead_is_dropped_and_was_in_flight() -> None:
    """Partitions that leave wait for it: whoever drops it ends the process, or has been told that they left."""
    consumer, deciding, in_flight = Consumer(10), Deciding(), InFlight()
    async with reading(consumer, deciding, in_flight) as reader:
        reader.read_on()
        await settled()
        in_flight.end()

        assert not in_flight.idle.is_set()

    assert len(asyncio.all_tasks()) == 1


class Wrong(Deciding):
    """Meets a bug."""

    async def decide_ahead(self, intake: Intake, log_ends: Mapping[int, int]) -> Decided | None:
        await super().decide_ahead(intake, log_ends)
        raise RuntimeError("a bug")


async def test_no_reading_goes_on_when_the_batch_before_it_met_a_bug() -> None:
    deciding = Wrong()
    deciding.go_on.set()

    async def work() -> None:
        async with reading(Silent(2), deciding, InFlight()) as reader:
            reader.read_on()
            await settled()

    with pytest.raises(RuntimeError, match="a bug"):
        await work()
    assert len(asyncio.all_tasks()) == 1


async def test_that_kafka_is_away_at_the_end_does_not_hide_a_bug() -> None:
    """A worker that stops while it waits ends well, one that met a bug does not."""
    deciding, stop = Deciding(), asyncio.Event()
    deciding.go_on.set()

    async def work() -> None:
        async with reading(Away(2), deciding, InFlight(), stop) as reader:
            await reader.next()
            reader.read_on()
            stop.set()
            await asyncio.sleep(0.2)
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        await work()
