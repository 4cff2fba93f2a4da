"""memory-commands -> batches that are understood and decided while the batch before them is written.

While one is decided, which waits for what PostgreSQL finds, the one after it is understood.

Nothing is written or acknowledged here: a batch that was read and is then dropped comes again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from time import monotonic
from typing import TypeAlias

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from schemas.errors import DependencyDown
from topics.away import kafka_down
from topics.catalog import Topic
from topics.records import ReceivedRecord
from workers.logic.memory.commands import Rules
from workers.memory.batch import Decided
from workers.memory.intake import Intake, take_in
from workers.runtime.health import Health
from workers.runtime.retry import Stopping, retry

Polled: TypeAlias = Mapping[TopicPartition, Sequence["ConsumerRecord[bytes | None, bytes | None]"]]

_POLL_MS = 200
#: Records between two looks at what else waits: about a millisecond, so that PostgreSQL's answers are not kept waiting.
_SLICE = 50


@dataclass(slots=True)
class Batch:
    """What was read and understood, in order; `positions` are the offsets after its last records."""

    intake: Intake = field(default_factory=Intake)
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    #: The offset after the newest record of each partition's log.
    log_ends: dict[int, int] = field(default_factory=dict)
    #: What it comes to, where it was full before its turn came.
    decided: Decided | None = None
    #: Monotonic seconds of the poll.
    started: float = 0.0


class InFlight:
    """Counts the batches that were read and are not finished."""

    def __init__(self) -> None:
        self.idle = asyncio.Event()
        self.idle.set()
        #: Partitions leave as soon as these are finished: nothing is added to them.
        self.draining = False
        self._batches = 0

    def begin(self) -> None:
        """Note one more."""
        self._batches += 1
        self.idle.clear()

    def end(self) -> None:
        """Note that one is finished."""
        self._batches -= 1
        if self._batches == 0:
            self.idle.set()


class Reader:
    """Polls for one consumer."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        rules: Rules,
        in_flight: InFlight,
        decide_ahead: Callable[[Intake, Mapping[int, int]], Awaitable[Decided | None]],
        *,
        batch_size: int,
        servers: str,
        health: Health,
        stop: asyncio.Event,
    ) -> None:
        self._consumer = consumer
        self._rules = rules
        self._in_flight = in_flight
        self._decide_ahead = decide_ahead
        self._batch_size = batch_size
        self._servers = servers
        self._health = health
        self._stop = stop
        #: The next batch, being read and decided; and the one after it, being read.
        self._ahead: asyncio.Task[Batch | None] | None = None
        self._after: asyncio.Task[Batch | None] | None = None

    def read_on(self) -> None:
        """Begin with the next batch, unless that was done before."""
        if self._ahead is None:
            self._ahead = asyncio.create_task(self._prepare())

    async def next(self) -> Batch | None:
        """Wait a little for records and understand them; None when none came. Raises `Stopping`."""
        self.read_on()
        assert self._ahead is not None, "it was begun"
        ahead, self._ahead = self._ahead, None
        return await ahead

    async def drop(self) -> None:
        """Drop what was read ahead: it is not lost, since it was not acknowledged.

        Nothing reads on after this, whatever was met. Raises a bug that was; not `Stopping`, which would hide another.
        """
        tasks = [task for task in (self._ahead, self._after) if task is not None]
        for task in tasks:
            task.cancel()
        for met in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(met, Exception) and not isinstance(met, Stopping):
                raise met

    async def _prepare(self) -> Batch | None:
        reading = self._after or asyncio.create_task(self._read())
        self._after = None
        batch = await reading
        if batch is not None and batch.intake.records == self._batch_size:
            self._after = asyncio.create_task(self._read())
            batch.decided = await self._decide_ahead(batch.intake, batch.log_ends)
        return batch

    async def _read(self) -> Batch | None:
        polled = await self._poll(_POLL_MS, self._batch_size)
        if not polled:
            return None
        self._in_flight.begin()
        batch = Batch(started=monotonic())
        await self._understand(polled, batch)
        return batch

    async def top_up(self, batch: Batch) -> None:
        """Add what came while the batch waited for its turn. Raises `Stopping`.

        Not while partitions move: aiokafka then answers when they are shared out, which waits for this very batch.
        """
        room = self._batch_size - batch.intake.records
        if room > 0 and not self._in_flight.draining:
            await self._understand(await self._poll(0, room), batch)

    async def _understand(self, polled: Polled, batch: Batch) -> None:
        batch.positions.update(_positions(polled))
        batch.log_ends.update(_log_ends(self._consumer, polled))
        records = iter(_received(polled))
        while part := list(islice(records, _SLICE)):
            take_in(part, self._rules, batch.intake)
            await asyncio.sleep(0)

    async def _poll(self, timeout_ms: int, max_records: int) -> Polled:
        """Return what has come. An empty poll is no sign of life of Kafka, so it turns no check green."""

        async def poll() -> Polled:
            try:
                polled: Polled = await self._consumer.getmany(timeout_ms=timeout_ms, max_records=max_records)
            except KafkaError as error:
                raise kafka_down(self._servers, error) from error
            return polled

        try:
            return await poll()
        except DependencyDown:
            return await retry(poll, name="kafka", health=self._health, stop=self._stop)


def _positions(polled: Polled) -> dict[TopicPartition, int]:
    return {tp: records[-1].offset + 1 for tp, records in polled.items() if records}


def _log_ends(consumer: AIOKafkaConsumer, polled: Polled) -> dict[int, int]:
    ends = {tp.partition: consumer.highwater(tp) for tp in polled if tp in consumer.assignment()}
    return {partition: end for partition, end in ends.items() if end is not None}


def _received(polled: Polled) -> list[ReceivedRecord]:
    """Return a poll's records, each partition's in order."""
    return [
        ReceivedRecord(
            Topic.MEMORY_COMMANDS,
            record.partition,
            record.offset,
            record.key,
            record.value,
            record.headers,
            record.timestamp,
        )
        for records in polled.values()
        for record in records
    ]
