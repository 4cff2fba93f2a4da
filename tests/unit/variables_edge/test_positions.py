"""Where a worker begins to read, after a rebalance and after a fetch that it could not hand on."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest
from aiokafka import TopicPartition
from faust.types import TP

from workers.variables.driver import ConsumerThread, FetchConsumer

NEVER_COMMITTED = TopicPartition("execution-events", 0)
COMMITTED = TopicPartition("execution-events", 1)
CHANGELOG = TopicPartition("changelog", 0)


class KafkaConsumer:
    """aiokafka's, as far as seeking goes: it leaves a partition without a committed position where it is."""

    def __init__(self) -> None:
        self.positions = {NEVER_COMMITTED: 24, COMMITTED: 9, CHANGELOG: 7}

    async def seek_to_committed(self) -> dict[TopicPartition, int | None]:
        self.positions[COMMITTED] = 5
        return {NEVER_COMMITTED: None, COMMITTED: 5, CHANGELOG: None}

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        self.positions.update(dict.fromkeys(partitions, 0))


async def test_what_was_fetched_before_the_first_commit_and_not_handed_on_is_read_again():
    """A rebalance in the group's first seconds lost the first records of a partition."""
    consumer = KafkaConsumer()
    thread = thread_of(consumer)

    committed = await thread.seek_to_committed()

    assert committed[COMMITTED] == 5
    assert consumer.positions == {NEVER_COMMITTED: 0, COMMITTED: 5, CHANGELOG: 7}


@pytest.mark.parametrize(("applied", "sought"), [(41, 41), (-1, 0), (None, 0)])
async def test_a_changelog_that_was_fetched_and_not_handed_on_is_read_again_from_what_is_applied(
    applied: int | None, sought: int
) -> None:
    """Faust counts -1 where a recovery begins at the start, and None until a recovery has looked where it begins."""
    tp = TP(CHANGELOG.topic, CHANGELOG.partition)
    found: dict[TP, int] = {}

    async def seek(partition: TP, offset: int) -> None:
        found[partition] = offset

    consumer = object.__new__(FetchConsumer)
    consumer.app = SimpleNamespace(tables=SimpleNamespace(recovery=SimpleNamespace(active_offsets={tp: applied})))
    consumer.perform_seek = AsyncMock()
    consumer.assignment = lambda: {tp}
    consumer._is_changelog_tp = lambda _: True
    consumer.seek = seek

    await consumer._seek_back({CHANGELOG: []})

    assert found == {tp: sought}


def thread_of(consumer: KafkaConsumer) -> ConsumerThread:
    async def call(function: Callable[..., Awaitable[object]], *arguments: object) -> object:
        return await function(*arguments)

    thread = object.__new__(ConsumerThread)
    thread._consumer = consumer
    thread.consumer = SimpleNamespace(_is_changelog_tp=lambda tp: tp.topic == "changelog")
    thread.call_thread = call
    thread._ensure_consumer = lambda: consumer
    return thread
