"""Reads the history of a run: all logs from the beginning, all rows, all positions."""

import asyncio
from collections.abc import Mapping, Sequence
from time import time
from typing import NamedTuple

import asyncpg
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from tests.support.checker.positions import READ_BY
from tests.support.groups import acknowledged
from tests.support.history import HeadRow, History, ItemRow, OutcomeRow, RevisionRow, VersionRow
from topics.catalog import CATALOG, Topic
from topics.connection import KafkaConnection
from topics.log_ends import log_ends
from topics.records import ReceivedRecord
from workers.runtime.queries import load_queries

QUERIES = load_queries(__file__)
_TIMEOUT_S = 180
Ends = Mapping[tuple[Topic, int], int]


class Positions(NamedTuple):
    """How far everything is: the logs, and what the groups have committed."""

    ends: Ends
    committed: Mapping[tuple[str, Topic, int], int]

    @property
    def lag(self) -> int:
        """Records that a worker has not acknowledged."""
        return sum(
            end - self.committed.get((worker, topic, partition), 0)
            for worker, topics in READ_BY.items()
            for (topic, partition), end in self.ends.items()
            if topic in topics
        )


async def positions(connection: KafkaConnection, partitions: int) -> Positions:
    """Look where the logs end and how far the groups are."""
    lanes = _lanes(connection, partitions)
    async with AIOKafkaConsumer(**connection.client_options("tally-checker")) as consumer:
        consumer.assign(list(lanes))
        ends = {lanes[tp]: end for tp, end in (await log_ends(consumer, list(lanes))).items()}
    committed = {}
    for worker, topics in READ_BY.items():
        found = await acknowledged(connection, f"{connection.prefix}{worker}", topics, partitions)
        for tp, offset in found.items():
            committed[(worker, *lanes[tp])] = offset
    return Positions(ends, committed)


async def capture(connection: KafkaConnection, dsn: str, partitions: int, history: History) -> History:
    """Complete `history` (what clients were told, what was planted) by all that lies in Kafka and PostgreSQL."""
    found = await positions(connection, partitions)
    history.log_ends = dict(found.ends)
    history.committed = dict(found.committed)
    history.logs = await _read_logs(connection, partitions, found.ends)
    session = await asyncpg.connect(dsn, timeout=30)
    try:
        history.items = [ItemRow(*row) for row in await session.fetch(QUERIES["items"])]
        history.versions = [VersionRow(*row) for row in await session.fetch(QUERIES["versions"])]
        history.outcomes = [OutcomeRow(*row) for row in await session.fetch(QUERIES["outcomes"])]
        history.heads = [HeadRow(*row) for row in await session.fetch(QUERIES["heads"])]
        history.revisions = [RevisionRow(*row) for row in await session.fetch(QUERIES["revisions"])]
        for group, topic, partition, offset in await session.fetch(QUERIES["positions"]):
            history.applied[group.removeprefix(connection.prefix), Topic(topic), partition] = offset
        history.looked_at = time()
    finally:
        await session.close(timeout=10)
    return history


def _lanes(connection: KafkaConnection, partitions: int) -> dict[TopicPartition, tuple[Topic, int]]:
    return {
        TopicPartition(connection.wire_name(spec.topic), partition): (spec.topic, partition)
        for spec in CATALOG
        for partition in range(partitions)
    }


async def _read_logs(connection: KafkaConnection, partitions: int, ends: Ends) -> dict[Topic, list[ReceivedRecord]]:
    lanes = _lanes(connection, partitions)
    logs: dict[tuple[Topic, int], list[ReceivedRecord]] = {lane: [] for lane in lanes.values()}
    consumer = AIOKafkaConsumer(**connection.client_options("tally-checker"), max_poll_records=5000)
    await consumer.start()
    try:
        consumer.assign(list(lanes))
        await consumer.seek_to_beginning()
        async with asyncio.timeout(_TIMEOUT_S):
            while any([await consumer.position(tp) < ends[lane] for tp, lane in lanes.items()]):
                for tp, records in (await consumer.getmany(timeout_ms=500)).items():
                    logs[lanes[tp]] += _received(lanes[tp][0], records)
    finally:
        await consumer.stop()
    return {
        spec.topic: [record for partition in range(partitions) for record in logs[spec.topic, partition]]
        for spec in CATALOG
    }


def _received(topic: Topic, records: Sequence["ConsumerRecord[bytes | None, bytes | None]"]) -> list[ReceivedRecord]:
    return [
        ReceivedRecord(
            topic, record.partition, record.offset, record.key, record.value, record.headers, record.timestamp
        )
        for record in records
    ]
