"""What is read while a recovery ends is not lost on its way to the worker: it would wait for that for ever."""

from pathlib import Path

from tests.support.edge import assert_whole, completed, edge, started

#: The end of a recovery as a busy machine has it: the agent is not at its queue before the rebalance is over, and
#: there is time to fetch between the last seek and the moment when Faust clears the queues and says it is over.
_BUSY = """
import asyncio
from mode.utils.queues import ThrowableQueue
from workers.variables.driver import FetchConsumer

consumers = []
seek = FetchConsumer.perform_seek

async def seek_with_time_to_fetch(self):
    consumers.append(self)
    await seek(self)
    await asyncio.sleep(1.5)

async def get_late(self):
    while self.empty() or any(consumer.app.rebalancing for consumer in consumers):
        await asyncio.sleep(0.01)
    return self.get_nowait()

FetchConsumer.perform_seek = seek_with_time_to_fetch
ThrowableQueue.get = get_late
"""


async def test_a_fetch_that_meets_the_end_of_a_recovery_is_processed(
    kafka_bootstrap_servers: str, database: str, topic_prefix: str, tmp_path: Path
) -> None:
    async with edge(kafka_bootstrap_servers, database, topic_prefix, tmp_path) as variables:
        events = [started("run"), *(completed("run", f"step-{number}", value=number) for number in range(5))]
        await variables.publish(events[:3])
        first = await variables.start_worker()
        await variables.drained()
        await first.kill()
        await variables.publish(events[3:])

        await variables.start_worker(prelude=_BUSY)
        await variables.drained()

        await assert_whole(variables, events)
