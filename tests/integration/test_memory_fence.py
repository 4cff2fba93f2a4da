"""The memory worker's stored positions: forward only, but for a topic that was made anew."""

from datetime import timedelta

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


def worker(database: Database) -> MemoryBatches:
    return MemoryBatches(database, RULES, group="memory", outcome_retention=timedelta(days=8))


async def position(database: Database) -> int:
    async with database.session() as connection:
        found: int = await connection.fetchval("SELECT next_offset FROM consumer_positions")
        return found


async def test_a_zombie_that_sends_again_does_not_move_the_position_back(opened):
    delivered = records(10)
    await worker(opened).apply(take_in(delivered, RULES), {0: 10})

    committed = await worker(opened).apply(take_in(delivered[:4], RULES), {0: 10})

    assert committed.replayed == 4
    assert await position(opened) == 10


async def test_the_position_starts_again_with_a_topic_that_was_made_anew(opened):
    await worker(opened).apply(take_in(records(10), RULES), {0: 10})

    await worker(opened).apply(take_in(records(3), RULES), {0: 3})

    assert await position(opened) == 3
