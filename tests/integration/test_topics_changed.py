"""Topics and groups that are changed under the workers: nothing is lost, and what is wrong is said."""

from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from schemas.envelope import Event
from schemas.errors import DependencyDown
from tests.support.edge import Edge, completed, event, started
from tests.support.memory import Memory, command, memory_on, until
from tests.support.ports import free_port, until_readyz
from tests.support.stack import is_kafka
from topics.catalog import CATALOG, MAX_MESSAGE_BYTES, Topic
from topics.codec import STRUCTURED_HEADERS, encode
from topics.connection import KafkaConnection
from topics.keys import partition_of
from topics.publisher import Publisher
from topics.records import Record
from workers.cli.doctor import diagnose

pytestmark = pytest.mark.skipif(not is_kafka(), reason="the embedded broker's topics stay as they are")
INCREMENT = {"scope": "shared", "subject": {"kind": "c", "id": "c"}, "key": "k", "type": "Integer"}


@pytest_asyncio.fixture
async def memory(kafka_bootstrap_servers: str, database: str, topic_prefix: str) -> AsyncIterator[Memory]:
    async with memory_on(kafka_bootstrap_servers, database, topic_prefix) as memory:
        yield memory


@asynccontextmanager
async def admin(connection: KafkaConnection) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(**connection.client_options("test"))
    await client.start()
    try:
        yield client
    finally:
        await client.close()


def asking(runs: range) -> list[Event]:
    """Runs that each ask the memory for something."""
    request = {"node_id": "count", **INCREMENT, "operation": "increment", "by": 1}
    return [
        each for run in runs for each in (started(f"run-{run}"), event(f"run-{run}", "memory.update", dict(request)))
    ]


async def until_answered(variables: Edge, runs: int) -> None:
    async def answered() -> bool | None:
        async with variables.database() as connection:
            # A start, a request and its outcome make three.
            count = await connection.fetchval("SELECT count(*) FROM executions WHERE revision = 3")
        return True if count == runs else None

    await until(answered, 60)


async def test_partitions_may_be_added_while_workers_run(variables: Edge) -> None:
    connection = variables.settings.kafka()
    async with memory_on(
        connection.bootstrap_servers,
        variables.settings.postgres_dsn.get_secret_value(),
        connection.prefix,
    ) as memory:
        await memory.start_worker()
        worker = await variables.start_worker()
        await variables.publish(asking(range(12)))
        await until_answered(variables, 12)

        together = [connection.wire_name(spec.topic) for spec in CATALOG if spec.copartitioned]
        async with admin(connection) as client:
            await client.create_partitions({name: NewPartitions(7) for name in together})
        # The memory worker goes on and has not heard of it yet; its outcomes go where they went before.
        await worker.stop()
        await variables.start_worker()
        publisher = Publisher(connection, "test")
        await publisher.start()
        await publisher.publish(
            Record(Topic.EXECUTION_EVENTS, (each.subject or "").encode(), encode(each), STRUCTURED_HEADERS)
            for each in asking(range(12, 36))
        )
        await publisher.stop()

        await until_answered(variables, 36)


async def test_a_partition_can_be_published_to_as_soon_as_it_is_there(memory: Memory) -> None:
    record = Record(Topic.MEMORY_COMMANDS, None, b"{}", (), 5)
    name = memory.connection.wire_name(Topic.MEMORY_COMMANDS)

    with pytest.raises(DependencyDown, match=f"no partition 5 of {name}; see `tally topics check`"):
        await memory.publisher.publish([record])
    async with admin(memory.connection) as client:
        await client.create_partitions({name: NewPartitions(6)})

    async def published() -> Mapping[tuple[str, int], int] | None:
        try:
            return await memory.publisher.publish([record])
        except DependencyDown:
            return None

    assert await until(published, 20) == {(name, 5): 0}


async def test_a_topic_that_refuses_what_a_worker_says_is_waited_for(memory: Memory) -> None:
    events = [command("memory.update", type="Integer", operation="increment") for _ in range(20)]
    port = free_port()
    process = await memory.start_worker(health_host="127.0.0.1", health_port=port)
    await until_readyz(port, 200)

    await set_max_message_bytes(memory.connection, Topic.MEMORY_RESULTS, 300)
    await memory.publish(*events)
    await until_readyz(port, 503, f"set max.message.bytes={MAX_MESSAGE_BYTES} on that topic")
    await set_max_message_bytes(memory.connection, Topic.MEMORY_RESULTS, MAX_MESSAGE_BYTES)

    outcomes = await memory.outcomes([each.id for each in events])
    assert [outcomes[each.id].data["version"] for each in events] == list(range(1, 21))
    assert process.returncode is None


async def set_max_message_bytes(connection: KafkaConnection, topic: Topic, size: int) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, connection.wire_name(topic), {"max.message.bytes": str(size)})
    async with admin(connection) as client:
        await client.alter_configs([resource])


async def test_records_that_their_topic_deleted_unread_are_told(variables: Edge) -> None:
    worker = await variables.start_worker()
    await variables.publish([started("run"), completed("run", "one")])
    await variables.drained()
    assert await worker.stop() == 0
    await variables.publish([completed("run", name) for name in ("two", "three", "four")])
    place = TopicPartition(variables.settings.kafka().wire_name(Topic.EXECUTION_EVENTS), partition_of(b"run", 4))
    async with admin(variables.settings.kafka()) as client:
        await client.delete_records({place: RecordsToDelete(4)})

    told = [found.what for found in await diagnose(variables.settings) if found.name == "worker variables"]
    last = await variables.start_worker()
    await variables.drained()

    assert told == ["does not run, 1 records wait", "2 records were deleted before it read them"]
    assert "records are lost" in last.lines()
    store = await variables.store("run")
    assert store is not None
    assert store.revision == 3


async def test_positions_that_were_set_by_hand_lose_and_double_nothing(memory: Memory) -> None:
    events = [command("memory.update", type="Integer", operation="increment") for _ in range(31)]

    worker = await memory.start_worker()
    first = await memory.ask(*events[:10])
    await stop(worker)
    await memory.publish(*events[10:20])
    await set_positions(memory, {0: 20})
    worker = await memory.start_worker()
    second = await memory.ask(*events[20:30])
    await stop(worker)
    await set_positions(memory, {0: 0})
    await memory.start_worker()
    third = await memory.ask(events[30])

    skipped = await memory.outcomes([each.id for each in events[10:20]])
    by_hand = [skipped[each.id] for each in events[10:20]]
    versions = [each.data["version"] for each in (*first, *by_hand, *second, *third)]
    assert versions == list(range(1, 32))
    copies: dict[str, set[bytes | None]] = {}
    for found, (_, value) in zip(
        await memory.events(Topic.MEMORY_RESULTS), await memory.records(Topic.MEMORY_RESULTS), strict=True
    ):
        copies.setdefault(str(found.data["command_id"]), set()).add(value)
    assert {len(values) for values in copies.values()} == {1}


async def stop(worker: Process) -> None:
    worker.terminate()
    assert await worker.wait() == 0


async def set_positions(memory: Memory, offsets: Mapping[int, int]) -> None:
    """Set the group as `kafka-consumer-groups.sh --reset-offsets` does."""
    consumer = AIOKafkaConsumer(
        **memory.connection.client_options("test"), group_id=memory.group, enable_auto_commit=False
    )
    name = memory.connection.wire_name(Topic.MEMORY_COMMANDS)
    consumer.assign([TopicPartition(name, number) for number in offsets])
    await consumer.start()
    try:
        await consumer.commit({TopicPartition(name, number): offset for number, offset in offsets.items()})
    finally:
        await consumer.stop()
