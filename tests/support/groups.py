"""What consumer groups have acknowledged, asked in the way that every broker answers."""

from collections.abc import Iterable, Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition

from topics.catalog import Topic
from topics.connection import KafkaConnection


async def acknowledged(
    connection: KafkaConnection, group: str, topics: Iterable[Topic], partitions: int
) -> Mapping[TopicPartition, int]:
    """Return the offset that `group` has acknowledged in each partition, 0 where it has none."""
    # Not by the admin client, whose request the embedded broker answers wrongly. Assigned, so that it does not join.
    consumer = AIOKafkaConsumer(**connection.client_options("test"), group_id=group, enable_auto_commit=False)
    asked = [TopicPartition(connection.wire_name(topic), number) for topic in topics for number in range(partitions)]
    consumer.assign(asked)
    await consumer.start()
    try:
        return {partition: await consumer.committed(partition) or 0 for partition in asked}
    finally:
        await consumer.stop()
