"""Consumer groups and the ends of topics: who works, and how much is left to do."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupCoordinatorNotAvailableError, KafkaError

from topics.away import kafka_down
from topics.catalog import Topic
from topics.connection import KafkaConnection
from topics.log_ends import log_ends

#: First kept offset and the one after the last, by topic and partition.
Extents: TypeAlias = Mapping[tuple[Topic, int], tuple[int, int]]
_REQUEST_TIMEOUT_MS = 15_000
_POLLS = 4
_POLL_MS = 500
_COORDINATOR_ATTEMPTS = 20
_COORDINATOR_PAUSE_S = 0.25


async def members(connection: KafkaConnection, groups: Sequence[str]) -> Mapping[str, int]:
    """Return how many members each group has now. Raises `DependencyDown`."""
    admin = AIOKafkaAdminClient(**connection.client_options("tally-groups"), request_timeout_ms=_REQUEST_TIMEOUT_MS)
    try:
        await admin.start()
        responses = await _described(admin, list(groups))
    except (KafkaError, OSError) as error:
        raise kafka_down(connection.bootstrap_servers, error) from error
    finally:
        await admin.close()
    # Each group is (error, name, state, protocol type, protocol, members, ...).
    found = {group[1]: len(group[5]) for response in responses for group in response.groups}
    return {group: found.get(group, 0) for group in groups}


async def _described(admin: AIOKafkaAdminClient, groups: list[str]) -> Sequence[Any]:
    """Ask for the groups; a broker that never had any makes its place for them only when asked."""
    for _ in range(_COORDINATOR_ATTEMPTS):
        try:
            described: Sequence[Any] = await admin.describe_consumer_groups(groups)
        except GroupCoordinatorNotAvailableError:
            await asyncio.sleep(_COORDINATOR_PAUSE_S)
        else:
            return described
    return ()


async def extents(connection: KafkaConnection, topics: Sequence[Topic]) -> Extents:
    """Return what is kept of each partition. Raises `DependencyDown`."""
    consumer = AIOKafkaConsumer(
        *(connection.wire_name(topic) for topic in topics),
        **connection.client_options("tally-extents"),
        enable_auto_commit=False,
        request_timeout_ms=_REQUEST_TIMEOUT_MS,
    )
    try:
        await consumer.start()
        partitions: list[TopicPartition] = list(consumer.assignment())
        first = await consumer.beginning_offsets(partitions)
        ends = await log_ends(consumer, partitions)
    except (KafkaError, OSError) as error:
        raise kafka_down(connection.bootstrap_servers, error) from error
    finally:
        await consumer.stop()
    return {
        (connection.logical(partition.topic), partition.partition): (first[partition], ends[partition])
        for partition in partitions
    }


async def first_record(
    connection: KafkaConnection, positions: Mapping[tuple[Topic, int], int]
) -> tuple[tuple[Topic, int], int] | None:
    """Return topic, partition and offset of a record at or after `positions`; None where there is none.

    Raises `DependencyDown`.
    """
    partitions = {
        TopicPartition(connection.wire_name(topic), number): position for (topic, number), position in positions.items()
    }
    consumer = AIOKafkaConsumer(
        **connection.client_options("tally-first"), enable_auto_commit=False, request_timeout_ms=_REQUEST_TIMEOUT_MS
    )
    try:
        consumer.assign(list(partitions))
        await consumer.start()
        for partition, position in partitions.items():
            consumer.seek(partition, position)
        for _ in range(_POLLS):
            for partition, records in (await consumer.getmany(timeout_ms=_POLL_MS, max_records=1)).items():
                if records:
                    return (connection.logical(partition.topic), partition.partition), records[0].offset
    except (KafkaError, OSError) as error:
        raise kafka_down(connection.bootstrap_servers, error) from error
    finally:
        await consumer.stop()
    return None
