"""What is read while a recovery ends is not lost on its way to the worker: it would wait for that for ever."""

from tests.support.edge import Edge, Worker, assert_whole, completed, started

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

#: A fetch of the changelog that a rebalance overtakes: it is dropped after the recovery has sought its place.
_OVERTAKEN = """
from workers.variables.driver import FetchConsumer

overtaken = []
wait, seek = FetchConsumer._wait_next_records, FetchConsumer.perform_seek

async def wait_and_be_overtaken(self, timeout):
    records, active = await wait(self, timeout)
    if records and not overtaken and all(map(self._is_changelog_tp, records)):
        overtaken.append(True)
        self.flow_active = False
        print("overtaken", flush=True)
    return records, active

async def seek_and_go_on(self):
    await seek(self)
    self.flow_active = self.flow_active or bool(overtaken)

FetchConsumer._wait_next_records = wait_and_be_overtaken
FetchConsumer.perform_seek = seek_and_go_on
"""


async def recovered(edge: Edge, prelude: str) -> Worker:
    """Let a worker recover what a killed one left, and do the rest; `prelude` is how its recovery goes."""
    events = [started("run"), *(completed("run", f"step-{number}", value=number) for number in range(5))]
    await edge.publish(events[:3])
    first = await edge.start_worker()
    await edge.drained()
    await first.kill()
    await edge.publish(events[3:])
    second = await edge.start_worker(prelude=prelude)
    await edge.drained()
    await assert_whole(edge, events)
    return second


async def test_a_fetch_of_a_recovery_that_is_dropped_is_read_again(variables: Edge) -> None:
    worker = await recovered(variables, _OVERTAKEN)

    assert "overtaken" in worker.lines()


async def test_a_fetch_that_meets_the_end_of_a_recovery_is_processed(variables: Edge) -> None:
    await recovered(variables, _BUSY)
