"""What every row does with Kafka: fill a topic, watch a log grow, and the raw limits of reading and writing."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from bench.machine import PARTITIONS, Bench
from topics.catalog import Topic
from topics.publisher import Publisher
from topics.records import Record

_POLL_S = 0.02
_DEADLINE_S = 600.0
_FILL = 2000


@asynccontextmanager
async def publisher(bench: Bench) -> AsyncIterator[Publisher]:
    """Lend a publisher."""
    found = Publisher(bench.settings.kafka(), "bench")
    await found.start()
    try:
        yield found
    finally:
        await found.stop()


async def fill(target: Publisher, records: Sequence[Record]) -> None:
    """Publish records, in their order."""
    for start in range(0, len(records), _FILL):
        await target.publish(records[start : start + _FILL])


@asynccontextmanager
async def consumer(bench: Bench, topics: Iterable[str], **options: object) -> AsyncIterator[Any]:
    """Lend a consumer of whole topics, from their beginning, outside of any group."""
    found = AIOKafkaConsumer(
        **bench.settings.kafka().client_options("bench"),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=5 * 1024 * 1024,
        **options,
    )
    await found.start()
    try:
        found.assign([TopicPartition(name, number) for name in topics for number in range(PARTITIONS)])
        yield found
    finally:
        await found.stop()


@asynccontextmanager
async def whole_log(bench: Bench, wire_name: str) -> AsyncIterator[AsyncIterator[Any]]:
    """Lend all records that a topic holds now."""
    async with consumer(bench, [wire_name]) as reader:
        partitions = [TopicPartition(wire_name, number) for number in range(PARTITIONS)]
        ends = await reader.end_offsets(partitions)
        yield _until(reader, {tp: end for tp, end in ends.items() if end})


async def _until(reader: Any, ends: dict[TopicPartition, int]) -> AsyncIterator[Any]:
    while ends:
        for tp, records in (await reader.getmany(timeout_ms=500)).items():
            for record in records:
                yield record
            if tp in ends and records[-1].offset + 1 >= ends[tp]:
                del ends[tp]


class LogEnd:
    """How many records a topic has got."""

    def __init__(self, reader: Any, wire_name: str) -> None:
        self._reader = reader
        self._partitions = [TopicPartition(wire_name, number) for number in range(PARTITIONS)]

    async def records(self) -> int:
        """Return the number of records ever appended."""
        ends = await self._reader.end_offsets(self._partitions)
        return sum(ends.values())

    async def wait_for(self, records: int) -> None:
        """Wait until so many were appended; twenty milliseconds exact: each look takes time from what is measured."""
        async with asyncio.timeout(_DEADLINE_S):
            while await self.records() < records:  # noqa: ASYNC110 - the log is in another process
                await asyncio.sleep(_POLL_S)


@asynccontextmanager
async def log_end(bench: Bench, topic: Topic) -> AsyncIterator[LogEnd]:
    """Watch one of the catalog's topics."""
    wire_name = bench.settings.kafka().wire_name(topic)
    async with consumer(bench, [wire_name]) as reader:
        # Who reads too asks for the log's end behind a fetch that the broker holds for half a second.
        reader.pause(*reader.assignment())
        yield LogEnd(reader, wire_name)


class ConsumeAndProduce:
    """The raw limit of Kafka: aiokafka reads batches, optionally parses, and writes as many bytes as we do.

    Everything that we could do at best: one process, packed batches, one acknowledgement for each batch.
    """

    def __init__(
        self, bench: Bench, records: Sequence[Record], answers: Sequence[Sequence[bytes]], *, parse: bool
    ) -> None:
        """`answers` are the values that each of `records` gives rise to."""
        parsed = " + parse" if parse else ""
        self.name = f"raw: aiokafka consume{parsed} + produce"
        self._bench = bench
        self._records = records
        self._answers = answers
        self._parse = parse
        self._stack: list[Any] = []

    async def start(self) -> None:
        """Make the topics and connect."""
        source, self._target = await self._bench.make_topic("raw-in"), await self._bench.make_topic("raw-out")
        options = self._bench.settings.kafka().client_options("bench")
        self._source = source
        self._producer = AIOKafkaProducer(**options, acks="all", max_batch_size=512 * 1024)
        self._consumer = AIOKafkaConsumer(
            **options,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_poll_records=self._bench.settings.batch_size,
            max_partition_fetch_bytes=5 * 1024 * 1024,
        )
        await self._producer.start()
        await self._consumer.start()
        self._consumer.assign([TopicPartition(source, number) for number in range(PARTITIONS)])

    async def stop(self) -> None:
        """Disconnect."""
        await self._consumer.stop()
        await self._producer.stop()

    async def prepare(self) -> None:
        """Write the input."""
        for start in range(0, len(self._records), _FILL):
            part = self._records[start : start + _FILL]
            await self._produce(self._source, [(i % PARTITIONS, r.key, r.value) for i, r in enumerate(part)])

    async def run(self) -> float:
        """Read it, and write the answers; nothing is left unacknowledged."""
        started = perf_counter()
        done = 0
        while done < len(self._records):
            polled = await self._consumer.getmany(timeout_ms=500, max_records=self._bench.settings.batch_size)
            out: list[tuple[int, bytes | None, bytes | None]] = []
            for tp, records in polled.items():
                for record in records:
                    if self._parse:
                        orjson.loads(record.value)
                    out += [(tp.partition, record.key, value) for value in self._answers[done]]
                    done += 1
            if out:
                await self._produce(self._target, out)
        return perf_counter() - started

    async def _produce(self, topic: str, records: Sequence[tuple[int, bytes | None, bytes | None]]) -> None:
        batches: dict[int, Any] = {}
        acknowledgements = []
        for partition, key, value in records:
            batch = batches.get(partition)
            if batch is None:
                batch = batches[partition] = self._producer.create_batch()
            if batch.append(key=key, value=value, timestamp=None) is None:
                acknowledgements.append(await self._producer.send_batch(batch, topic, partition=partition))
                batch = batches[partition] = self._producer.create_batch()
                batch.append(key=key, value=value, timestamp=None)
        for partition, batch in batches.items():
            acknowledgements.append(await self._producer.send_batch(batch, topic, partition=partition))
        await asyncio.gather(*acknowledgements)
