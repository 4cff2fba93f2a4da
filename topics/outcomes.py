"""Finding what came of an event by its id, wherever it was published from: `tally await`."""

import asyncio

from schemas.envelope import Event
from topics.catalog import Topic
from topics.connection import KafkaConnection
from topics.replies import cause_of
from topics.subscriber import Subscriber

_TOPICS = (Topic.MEMORY_RESULTS, Topic.NODE_RESULTS, Topic.VARIABLE_UPDATES)


async def find_outcome(
    connection: KafkaConnection, event_id: str, *, timeout_s: float, source: str | None = None
) -> Event | None:
    """Return the outcome of a command, the answer of a request, or the end of an execution, by id.

    Reads everything that is kept, then waits for what comes; None when nothing came within `timeout_s`.
    Raises `DependencyDown`.
    """
    needle = event_id.encode()
    async with Subscriber(connection, _TOPICS, start="beginning", client_id="tally-await") as subscriber:
        try:
            async with asyncio.timeout(timeout_s):
                async for received in subscriber:
                    event = received.event
                    if event is None or needle not in (received.record.value or b""):
                        continue
                    if _answers(event, event_id, source):
                        return event
        except TimeoutError:
            return None
    raise AssertionError("a subscription has no end")


def _answers(event: Event, event_id: str, source: str | None) -> bool:
    if event.type == "execution.finalized":
        return event.subject == event_id
    cause, cause_source = cause_of(event)
    return cause == event_id and source in (None, cause_source)
