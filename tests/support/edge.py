"""The variable worker as its users meet it: processes that are started and killed, topics written and read."""

import asyncio
import contextlib
import os
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from schemas.envelope import Event
from schemas.exact_json import JsonObject
from schemas.identity import key_of
from tests.support.groups import acknowledged
from topics.admin import TopicAdmin
from topics.catalog import Topic
from topics.codec import STRUCTURED_HEADERS, decode, encode
from topics.log_ends import log_ends
from topics.publisher import Publisher
from topics.records import Record
from workers.logic.variables.state import ExecutionKey
from workers.logic.variables.step import SOURCE
from workers.runtime.postgres import Database
from workers.settings import Settings, read_settings
from workers.variables import history
from workers.variables.application import group_of
from workers.variables.reading import INPUTS
from workers.variables.table import LiveExecution, recover

REPOSITORY = Path(__file__).resolve().parents[2]
PARTITIONS = 4
#: Quick to notice a kill, slow enough for a loaded machine's heartbeats.
SESSION_TIMEOUT_S = 3.0
DEADLINE_S = 90.0


async def run_worker() -> None:
    """Be a worker process: `python -c "from tests.support.edge import ..."`."""
    from workers.runtime import logs
    from workers.variables.worker import run

    settings = read_settings()
    logs.configure(settings.log_level, "json")
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await run(settings, stop)


@dataclass
class Worker:
    """One worker process."""

    process: asyncio.subprocess.Process
    log: Path

    async def exit_code(self) -> int:
        """Wait for the process to end by itself."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.process.wait()

    async def stop(self) -> int:
        """Ask it to stop and wait."""
        if self.process.returncode is None:
            self.process.terminate()
        return await self.exit_code()

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.exit_code()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def lines(self) -> str:
        return self.log.read_text()


@dataclass
class Published:
    """A record as it lies in a topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None

    @property
    def event(self) -> Event:
        return decode(self.value, ())


@dataclass
class Edge:
    """Topics and a database of one test's own."""

    settings: Settings
    directory: Path
    publisher: Publisher
    workers: list[Worker] = field(default_factory=list)

    async def start_worker(self, prelude: str = "", **variables: str) -> Worker:
        """Start a worker process; `prelude` is Python that runs in it first, `variables` are its `TALLY_...`."""
        log = self.directory / f"worker-{len(self.workers)}.log"
        environment = {
            **os.environ,
            "TALLY_KAFKA_BOOTSTRAP_SERVERS": self.settings.kafka_bootstrap_servers,
            "TALLY_POSTGRES_DSN": self.settings.postgres_dsn.get_secret_value(),
            "TALLY_TOPIC_PREFIX": self.settings.topic_prefix,
            "TALLY_KAFKA_SESSION_TIMEOUT_S": str(SESSION_TIMEOUT_S),
            **{f"TALLY_{name.upper()}": value for name, value in variables.items()},
        }
        code = f"{prelude}\nimport asyncio\nfrom tests.support.edge import run_worker\nasyncio.run(run_worker())"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", code, cwd=REPOSITORY, env=environment, stdout=output, stderr=output
            )
        worker = Worker(process, log)
        self.workers.append(worker)
        return worker

    async def publish(self, events: Iterable[Event], topic: Topic = Topic.EXECUTION_EVENTS) -> None:
        await self.publisher.publish(
            Record(topic, (event.subject or "").encode(), encode(event), STRUCTURED_HEADERS) for event in events
        )

    async def publish_raw(
        self, topic: Topic, key: bytes | None, value: bytes | None, partition: int | None = None
    ) -> None:
        await self.publisher.publish([Record(topic, key, value, (), partition)])

    async def read(self, topic: Topic) -> list[Published]:
        """Return everything that lies in a topic, each partition in order."""
        consumer = AIOKafkaConsumer(**self.settings.kafka().client_options("test"), auto_offset_reset="earliest")
        await consumer.start()
        try:
            name = self.settings.kafka().wire_name(topic)
            partitions = [TopicPartition(name, partition) for partition in range(PARTITIONS)]
            consumer.assign(partitions)
            ends = await log_ends(consumer, partitions)
            await consumer.seek_to_beginning()
            found: list[Published] = []
            async with asyncio.timeout(DEADLINE_S):
                while any([await consumer.position(partition) < ends[partition] for partition in partitions]):
                    batches = await consumer.getmany(timeout_ms=200)
                    found += [
                        Published(record.partition, record.offset, record.key, record.value)
                        for records in batches.values()
                        for record in records
                    ]
            return sorted(found, key=lambda record: (record.partition, record.offset))
        finally:
            await consumer.stop()

    async def make_anew(self, topic: Topic) -> None:
        """Delete a topic and create it again, empty."""
        admin = AIOKafkaAdminClient(**self.settings.kafka().client_options("test"))
        await admin.start()
        try:
            await admin.delete_topics([self.settings.kafka().wire_name(topic)])
        finally:
            await admin.close()
        async with TopicAdmin(self.settings.kafka()) as topics, asyncio.timeout(DEADLINE_S):
            while topic not in await topics.create(partitions=PARTITIONS, replication=1):
                await asyncio.sleep(0.2)

    async def committed(self) -> Mapping[TopicPartition, int]:
        """Return the positions that the worker's group has committed."""
        return await acknowledged(self.settings.kafka(), group_of(self.settings), INPUTS, PARTITIONS)

    async def log_ends(self, topics: Sequence[Topic] = INPUTS) -> Mapping[TopicPartition, int]:
        consumer = AIOKafkaConsumer(**self.settings.kafka().client_options("test"))
        await consumer.start()
        try:
            names = [self.settings.kafka().wire_name(topic) for topic in topics]
            partitions = [TopicPartition(name, partition) for name in names for partition in range(PARTITIONS)]
            consumer.assign(partitions)
            return await log_ends(consumer, partitions)
        finally:
            await consumer.stop()

    async def drained(self) -> None:
        """Wait until every input record is done: its position is committed."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                ends, committed = await self.log_ends(), await self.committed()
                if all(committed.get(partition, 0) >= end for partition, end in ends.items()):
                    return
                if all(worker.process.returncode is not None for worker in self.workers):
                    raise AssertionError(f"no worker is left:\n{self.workers[-1].lines()[-6000:]}")
                await asyncio.sleep(0.1)

    @contextlib.asynccontextmanager
    async def database(self) -> AsyncIterator[asyncpg.Connection]:
        connection = await asyncpg.connect(self.settings.postgres_dsn.get_secret_value())
        try:
            yield connection
        finally:
            await connection.close()

    async def store(self, execution_id: str) -> history.StoreAt | None:
        """Return an execution's store from its committed revisions."""
        async with Database.from_settings(self.settings, "test") as database, database.session() as connection:
            return await history.store_at(connection, ExecutionKey("default", execution_id))

    async def recovered(self) -> dict[ExecutionKey, LiveExecution]:
        """Return what a worker takes from the table's changelog."""
        executions: dict[ExecutionKey, LiveExecution] = {}
        for record in await self.read(Topic.EXECUTIONS_TABLE):
            assert record.key is not None
            recover(executions, record.key, record.value)
        return executions


@contextlib.asynccontextmanager
async def edge(kafka: str, dsn: str, prefix: str, directory: Path) -> AsyncIterator[Edge]:
    """Make the topics of a test; at its end no worker is left."""
    settings = read_settings(kafka_bootstrap_servers=kafka, postgres_dsn=dsn, topic_prefix=prefix)
    async with TopicAdmin(settings.kafka()) as admin:
        await admin.create(partitions=PARTITIONS, replication=1)
    publisher = Publisher(settings.kafka(), "test")
    await publisher.start()
    found = Edge(settings, directory, publisher)
    try:
        yield found
    finally:
        for worker in found.workers:
            await worker.kill()
        await publisher.stop()


def started(execution_id: str, **data: object) -> Event:
    body: JsonObject = {"workflow": {"name": "triage"}, "input": {"amount": 5}, **data}  # type: ignore[dict-item]
    return event(execution_id, "execution.started", body)


def completed(execution_id: str, activity_id: str, **output: object) -> Event:
    return event(execution_id, "activity.completed", {"activity_id": activity_id, "output": output}, activity_id)


def ended(execution_id: str) -> Event:
    return event(execution_id, "execution.completed", {})


def event(execution_id: str, event_type: str, data: Mapping[str, object], role: str = "") -> Event:
    return Event(
        id=f"{execution_id}/{event_type}/{role}", source="/test", type=event_type, subject=execution_id, data=dict(data)
    )


def outcome(command: Event, event_type: str, **data: object) -> Event:
    """Return what the memory worker would answer."""
    return Event(
        id=f"outcome of {command.id}",
        source="/tallystick/memory",
        type=event_type,
        subject=command.subject,
        data={"command_id": command.id, "command_source": SOURCE, "address": "-", **data},
    )


async def assert_whole(edge: Edge, events: Sequence[Event]) -> None:
    """Assert the promises: every event applied once, every revision published, copies equal, the changelog right."""
    keys = {key_of(event) for event in events}
    async with edge.database() as connection:
        rows = await connection.fetch("SELECT execution_id, revision, event_key FROM revisions")
        heads = dict(await connection.fetch("SELECT execution_id, revision FROM executions"))
    assert {row["event_key"] for row in rows} >= keys
    assert len({row["event_key"] for row in rows}) == len(rows)
    by_execution: defaultdict[str, list[int]] = defaultdict(list)
    for row in rows:
        by_execution[row["execution_id"]].append(row["revision"])
    for execution_id, numbers in by_execution.items():
        assert sorted(numbers) == list(range(1, len(numbers) + 1))
        assert heads[execution_id] == len(numbers)

    for topic in (Topic.VARIABLE_UPDATES, Topic.NODE_RESULTS, Topic.MEMORY_COMMANDS):
        values: dict[str, bytes | None] = {}
        for record in await edge.read(topic):
            assert values.setdefault(record.event.id, record.value) == record.value, "copies of an event differ"
        if topic is Topic.VARIABLE_UPDATES:
            revised = [decode(value) for value in values.values()]
            published = {
                (event.subject, event.data["revision"]) for event in revised if event.type == "variables.revised"
            }
            assert published == {(row["execution_id"], row["revision"]) for row in rows}


async def assert_table_is_right_or_behind(edge: Edge) -> int:
    """Assert that no worker would believe a wrong table; return how many stores it holds as they are."""
    right = 0
    for key, live in (await edge.recovered()).items():
        store = await edge.store(key.execution_id)
        assert store is not None
        if live.revision == store.revision and live.is_whole():
            assert live.entries == store.entries
            right += 1
    return right
