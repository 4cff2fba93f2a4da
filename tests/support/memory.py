"""Memory workers on real parts: processes that can be killed, commands in, everything that comes out."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

import asyncpg
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupCoordinatorNotAvailableError

from schemas.envelope import Event
from schemas.exact_json import JsonValue
from tests.support.groups import acknowledged
from tests.support.stack import REPOSITORY
from topics.admin import TopicAdmin
from topics.catalog import Topic
from topics.codec import STRUCTURED_HEADERS, decode, encode
from topics.connection import KafkaConnection
from topics.log_ends import log_ends
from topics.publisher import Publisher
from topics.records import Record

TIMEOUT_S = 120.0
Found = TypeVar("Found")
_numbers = count(1)


def command(
    event_type: str = "memory.write", *, event_id: str | None = None, run: str | None = None, **data: JsonValue
) -> Event:
    """A memory command on the item `stage` of workflow `onboarding`, patient p1, unless `data` says otherwise."""
    item: dict[str, JsonValue] = {
        "scope": "workflow",
        "workflow": "onboarding",
        "subject": {"kind": "patient", "id": "p1"},
        "key": "stage",
    }
    return Event(
        id=event_id or f"command-{next(_numbers)}",
        source="/test",
        type=event_type,
        subject=run,
        replykey=None if run else "test",
        data={**item, **data},
    )


def conversation(operation: str, **data: JsonValue) -> Event:
    return Event(
        id=f"command-{next(_numbers)}",
        source="/test",
        type=f"conversation.{operation}",
        replykey="test",
        data={"workflow": "support", **data},
    )


@dataclass
class Memory:
    connection: KafkaConnection
    dsn: str
    publisher: Publisher
    processes: list[asyncio.subprocess.Process] = field(default_factory=list)

    async def start_worker(self, **settings: object) -> asyncio.subprocess.Process:
        """Start one; `settings` are those of `TALLY_*`, in lower case."""
        given = {
            "kafka_bootstrap_servers": self.connection.bootstrap_servers,
            "postgres_dsn": self.dsn,
            "topic_prefix": self.connection.prefix,
            "kafka_session_timeout_s": 6,
            "health_host": "",
            "log_format": "json",
            **settings,
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.support.memory_process",
            cwd=REPOSITORY,
            env={**os.environ, **{f"TALLY_{name.upper()}": str(value) for name, value in given.items()}},
        )
        self.processes.append(process)
        return process

    async def members(self, number: int) -> None:
        """Wait until so many workers share the partitions."""
        admin = AIOKafkaAdminClient(**self.connection.client_options("test"))
        await admin.start()
        try:

            async def settled() -> bool | None:
                try:
                    (response,) = await admin.describe_consumer_groups([self.group])
                except GroupCoordinatorNotAvailableError:
                    return None  # the broker makes the topic of its groups only now
                (group,) = response.groups
                _, _, state, _, _, members, *_ = group
                return True if state == "Stable" and len(members) == number else None

            await until(settled)
        finally:
            await admin.close()

    async def committed(self) -> dict[int, int]:
        """Return the offsets that the group has acknowledged."""
        partitions = await self.publisher.partitions(Topic.MEMORY_COMMANDS)
        found = await acknowledged(self.connection, self.group, [Topic.MEMORY_COMMANDS], partitions)
        return {tp.partition: offset for tp, offset in found.items() if offset}

    @property
    def group(self) -> str:
        return f"{self.connection.prefix}memory"

    async def kill(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is None:
            process.kill()
            await process.wait()

    async def publish(self, *events: Event, partition: int | None = None) -> None:
        """Publish in order, to one partition (0 where none is named), so that the order holds."""
        await self.publisher.publish(
            Record(Topic.MEMORY_COMMANDS, None, encode(event), STRUCTURED_HEADERS, partition or 0) for event in events
        )

    async def ask(self, *events: Event, partition: int | None = None) -> list[Event]:
        """Publish and return the outcomes, in the commands' order."""
        await self.publish(*events, partition=partition)
        found = await self.outcomes([event.id for event in events])
        return [found[event.id] for event in events]

    async def outcomes(self, command_ids: Sequence[str], timeout_s: float = TIMEOUT_S) -> Mapping[str, Event]:
        """Wait until each command has an outcome."""
        wanted = set(command_ids)
        async with asyncio.timeout(timeout_s):
            while True:
                found = {str(event.data["command_id"]): event for event in await self.events(Topic.MEMORY_RESULTS)}
                if wanted <= found.keys():
                    return found

    async def events(self, topic: Topic) -> list[Event]:
        return [decode(value, ()) for _, value in await self.records(topic) if value is not None]

    async def records(self, topic: Topic) -> list[tuple[bytes | None, bytes | None]]:
        """Return key and value of all that is on a topic now."""
        return [pair for records in (await self._partitions(topic)).values() for pair in records]

    async def _partitions(self, topic: Topic) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
        consumer = AIOKafkaConsumer(**self.connection.client_options("test"), enable_auto_commit=False)
        await consumer.start()
        try:
            name = self.connection.wire_name(topic)
            partitions = [TopicPartition(name, number) for number in range(await self.publisher.partitions(topic))]
            consumer.assign(partitions)
            ends = await log_ends(consumer, partitions)
            await consumer.seek_to_beginning()
            found: dict[int, list[tuple[bytes | None, bytes | None]]] = {tp.partition: [] for tp in partitions}
            async with asyncio.timeout(TIMEOUT_S):
                while any([await consumer.position(tp) < end for tp, end in ends.items()]):
                    for tp, records in (await consumer.getmany(timeout_ms=100)).items():
                        found[tp.partition].extend((record.key, record.value) for record in records)
            return found
        finally:
            await consumer.stop()

    async def fetch(self, query: str, *arguments: object) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.dsn)
        try:
            return await connection.fetch(query, *arguments)
        finally:
            await connection.close()


@asynccontextmanager
async def memory_on(kafka: str, dsn: str, prefix: str, *, partitions: int = 2) -> AsyncIterator[Memory]:
    """Topics of this test's own, and no worker yet; those that it starts end with it."""
    connection = KafkaConnection(bootstrap_servers=kafka, prefix=prefix)
    async with TopicAdmin(connection) as admin:
        await admin.create(partitions=partitions, replication=1)
    publisher = Publisher(connection, "test")
    await publisher.start()
    memory = Memory(connection, dsn, publisher)
    try:
        yield memory
    finally:
        for process in memory.processes:
            await memory.kill(process)
        await publisher.stop()


async def until(check: Callable[[], Awaitable[Found | None]], timeout_s: float = TIMEOUT_S) -> Found:
    """Wait until `check` finds something."""
    async with asyncio.timeout(timeout_s):
        while (found := await check()) is None:
            await asyncio.sleep(0.05)
        return found
