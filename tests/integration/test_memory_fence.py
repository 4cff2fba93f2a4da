"""The memory worker's stored positions: forward only, but for a topic that was made anew."""

from datetime import timedelta
from unittest.mock import AsyncMock, patch

import pytest

from tests.support.memory import command
from topics.catalog import Topic
from topics.codec import encode
from topics.records import ReceivedRecord
from workers.logic.memory.commands import Rules
from workers.memory.batch import MemoryBatches
from workers.memory.intake import take_in
from workers.runtime.postgres import Database

RULES = Rules()


def records(count: int) -> list[ReceivedRecord]:
    return [
        ReceivedRecord(Topic.MEMORY_COMMANDS, 0, offset, None, encode(command(type="Integer", value=offset)))
        for offset in range(count)
    ]


def worker(database: Database, log_end: int) -> MemoryBatches:
    """A worker whose Kafka says, when asked, that the log ends at `log_end`."""
    asked = AsyncMock(return_value={0: log_end})
    return MemoryBatches(database, RULES, group="memory", outcome_retention=timedelta(days=8), log_ends=asked)


async def position(database: Database) -> int:
    async with database.session() as connection:
        found: int = await connection.fetchval("SELECT next_offset FROM consumer_positions")
        return found


@pytest.mark.parametrize("seen", [10, 4])
async def test_a_zombie_that_sends_again_does_not_move_the_position_back(opened, seen: int):
    """Nor where it was held up since its poll, and the log has grown."""
    delivered = records(10)
    await worker(opened, 10).apply(take_in(delivered, RULES), {0: 10})

    committed = await worker(opened, 10).apply(take_in(delivered[:4], RULES), {0: seen})

    assert committed.replayed == 4
    assert await position(opened) == 10


async def test_the_position_starts_again_with_a_topic_that_was_made_anew(opened):
    await worker(opened, 10).apply(take_in(records(10), RULES), {0: 10})

    await worker(opened, 3).apply(take_in(records(3), RULES), {0: 3})

    assert await position(opened) == 3


async def test_kafka_is_asked_only_where_a_topic_looks_like_one_made_anew(opened):
    batches = worker(opened, 10)
    with patch.object(batches, "_log_ends", AsyncMock(side_effect=AssertionError)):
        await batches.apply(take_in(records(10), RULES), {0: 10})
        await batches.apply(take_in(records(10), RULES), {0: 12})
