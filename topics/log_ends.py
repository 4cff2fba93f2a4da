"""Where logs end, asked in the way that every broker answers rightly."""

import asyncio
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, TopicPartition

_POLL_MS = 100
_TIMEOUT_S = 30


async def log_ends(consumer: AIOKafkaConsumer, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the offset after the newest record of each partition; the new `consumer`'s position is anywhere then.

    Asked for the latest offset, the embedded broker names the one after the first record of the newest batch; its
    fetches tell the right one. Raises what aiokafka raises, and `TimeoutError`.
    """
    first = await consumer.beginning_offsets(partitions)
    ends: dict[TopicPartition, int] = await consumer.end_offsets(partitions)
    filled = [partition for partition in partitions if ends[partition] > first[partition]]
    for partition in filled:
        consumer.seek(partition, ends[partition] - 1)
    async with asyncio.timeout(_TIMEOUT_S):
        while waiting := [partition for partition in filled if consumer.highwater(partition) is None]:
            await consumer.getmany(*waiting, timeout_ms=_POLL_MS)
    return {**ends, **{partition: int(consumer.highwater(partition) or 0) for partition in filled}}
