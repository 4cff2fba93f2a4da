"""Partitions leave while a batch is at hand: it is finished first, and not kept waiting for their return."""

import asyncio
from datetime import timedelta
from unittest.mock import AsyncMock

from pydantic import SecretStr

from tests.support.memory_store import RULES
from workers.memory.batch import MemoryBatches
from workers.memory.reading import Batch, InFlight, Polled, Reader
from workers.memory.worker import Rebalances
from workers.runtime.health import Health
from workers.runtime.membership import Membership
from workers.runtime.postgres import Database


class Consumer:
    """Answers as aiokafka does: not while partitions are shared out anew."""

    def __init__(self) -> None:
        self.assigned = asyncio.Event()
        self.polls = 0

    async def getmany(self, **_: object) -> Polled:
        await self.assigned.wait()
        self.polls += 1
        return {}


async def test_a_batch_that_partitions_wait_for_is_not_topped_up() -> None:
    consumer, in_flight, health = Consumer(), InFlight(), Health("memory")
    database = Database(SecretStr(""), pool_size=1, application_name="test")
    batches = MemoryBatches(
        database, RULES, group="test.memory", outcome_retention=timedelta(days=8), log_ends=AsyncMock()
    )
    rebalances = Rebalances(batches, in_flight, consumer, Membership(health), drain_s=60)
    reader = Reader(
        consumer,
        RULES,
        in_flight,
        batches.decide_ahead,
        batch_size=2,
        servers="here",
        health=health,
        stop=asyncio.Event(),
    )
    in_flight.begin()

    leaving = asyncio.create_task(rebalances.on_partitions_revoked(set()))
    await asyncio.sleep(0)
    await asyncio.wait_for(reader.top_up(Batch()), 10)
    in_flight.end()
    await leaving
    assert consumer.polls == 0

    await rebalances.on_partitions_assigned(set())
    consumer.assigned.set()
    await reader.top_up(Batch())
    assert consumer.polls == 1
