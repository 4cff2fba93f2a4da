"""The outcomes and answers that one client waits for, found by the id of what it published.

Reading starts before anything is published, so an outcome is found even where it came before the wait began.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import TypeVar

from schemas.data import Data
from schemas.envelope import Event
from schemas.errors import Unanswered, UsageError
from topics.catalog import Topic
from topics.connection import KafkaConnection
from topics.keys import partition_of
from topics.publisher import Publisher
from topics.subscriber import Received, Subscriber

_Found = TypeVar("_Found", bound=Data)
#: Replies that nobody has asked for; older ones are dropped, so that a client that only publishes stays small.
_MAX_UNCLAIMED = 100_000


def cause_of(reply: Event) -> tuple[object, object]:
    """Return id and source of what an outcome or answer replies to."""
    data = reply.data
    if "command_id" in data:
        return data["command_id"], data.get("command_source")
    return data.get("request_id"), data.get("request_source")


def outcome_as(expected: type[_Found], found: Data) -> _Found:
    """Return an outcome as the type that its command has. Raises `UsageError`."""
    if not isinstance(found, expected):
        raise UsageError(f"expected {expected.__name__}, got {type(found).__name__}; is the worker of another version?")
    return found


class Replies:
    """Reads our reply key's partition, and `node-results` once a request of an execution was published."""

    def __init__(self, connection: KafkaConnection, publisher: Publisher, reply_key: str) -> None:
        self._connection = connection
        self._publisher = publisher
        self._reply_key = reply_key
        self._watched: set[bytes | None] = {reply_key.encode()}
        self._expected: OrderedDict[tuple[str, str], asyncio.Future[Event]] = OrderedDict()
        self._readers: dict[Topic, asyncio.Task[None]] = {}
        self._exits = AsyncExitStack()

    async def start(self) -> None:
        """Begin to read the outcomes of commands. Raises `DependencyDown`, `UsageError`."""
        count = await self._publisher.partitions(Topic.MEMORY_RESULTS)
        await self._read(Topic.MEMORY_RESULTS, [partition_of(self._reply_key.encode(), count)])

    async def stop(self) -> None:
        """Stop reading."""
        for reader in self._readers.values():
            reader.cancel()
        await asyncio.gather(*self._readers.values(), return_exceptions=True)
        await self._exits.aclose()

    async def expect(self, event: Event) -> None:
        """Remember that `event` will be answered where we read; called before it is published."""
        if event.subject is not None:
            self._watched.add(event.subject.encode())
            if Topic.NODE_RESULTS not in self._readers:
                await self._read(Topic.NODE_RESULTS, range(await self._publisher.partitions(Topic.NODE_RESULTS)))
        elif event.replykey != self._reply_key:
            return
        self._expected.setdefault((event.id, event.source), asyncio.get_running_loop().create_future())
        while len(self._expected) > _MAX_UNCLAIMED:
            self._expected.popitem(last=False)

    async def wait(self, event_id: str, source: str, timeout_s: float) -> Event:
        """Return the reply to an event. Raises `Unanswered`, `DependencyDown` (reading broke), `UsageError`."""
        reply = self._expected.get((event_id, source))
        if reply is None:
            raise UsageError(
                f"{event_id} is not a command or request that this client published under its own reply key; "
                "`tally await` searches the topics for others"
            )
        waiting: list[asyncio.Future[Event] | asyncio.Task[None]] = [reply, *self._readers.values()]
        await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if reply.done():
            return reply.result()
        for reader in self._readers.values():
            if reader.done():
                reader.result()
        raise Unanswered(event_id, timeout_s)

    async def _read(self, topic: Topic, partitions: Iterable[int]) -> None:
        subscriber = await self._exits.enter_async_context(
            Subscriber(self._connection, [topic], start="end", partitions={topic: list(partitions)}, keys=self._watched)
        )
        self._readers[topic] = asyncio.create_task(self._collect(subscriber))

    async def _collect(self, subscriber: Subscriber) -> None:
        async for received in subscriber:
            self._take(received)

    def _take(self, received: Received) -> None:
        if received.event is None:
            return
        event_id, source = cause_of(received.event)
        reply = self._expected.get((str(event_id), str(source)))
        if reply is not None and not reply.done():
            reply.set_result(received.event)
