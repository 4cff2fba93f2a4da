"""The Python client at a real broker; a small stand-in answers as the memory worker would."""

import asyncio
from collections.abc import AsyncIterator, Callable
from decimal import Decimal

import pytest
import pytest_asyncio

from schemas.envelope import Event
from schemas.errors import DependencyDown, Rejection, UsageError
from schemas.exact_json import JsonObject
from schemas.memory import MemoryConflicted, MemoryFound, MemoryMissing, MemoryWritten
from topics.admin import TopicAdmin
from topics.catalog import Topic
from topics.client import Client
from topics.codec import encode
from topics.connection import KafkaConnection
from topics.publisher import Publisher
from topics.records import Record
from topics.subscriber import Subscriber

PATIENT = ("patient", "P-4711")
Answer = Callable[[Event], tuple[str, JsonObject]]


@pytest_asyncio.fixture
async def kafka(kafka_bootstrap_servers: str, topic_prefix: str) -> KafkaConnection:
    connection = KafkaConnection(bootstrap_servers=kafka_bootstrap_servers, prefix=topic_prefix)
    async with TopicAdmin(connection) as admin:
        await admin.create(partitions=2, replication=1)
    return connection


@pytest_asyncio.fixture
async def client(kafka: KafkaConnection) -> AsyncIterator[Client]:
    async with Client(kafka, source="/tests", timeout_s=20) as client:
        yield client


class Responder:
    """Answers commands and requests as a worker would: one outcome each, under the key that the contract names."""

    def __init__(self, kafka: KafkaConnection, answer: Answer) -> None:
        self._kafka = kafka
        self._answer = answer

    async def __aenter__(self) -> None:
        self._publisher = Publisher(self._kafka, "responder")
        await self._publisher.start()
        self._subscriber = Subscriber(self._kafka, [Topic.MEMORY_COMMANDS, Topic.EXECUTION_EVENTS])
        await self._subscriber.__aenter__()
        self._task = asyncio.create_task(self._respond())

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._subscriber.__aexit__(None, None, None)
        await self._publisher.stop()

    async def _respond(self) -> None:
        async for received in self._subscriber:
            command = received.event
            assert command is not None
            event_type, data = self._answer(command)
            if command.subject is None:
                cause: JsonObject = {"command_id": command.id, "command_source": command.source, "address": "a"}
            else:
                cause = {"request_id": command.id, "request_source": command.source, "node_id": "n"}
            outcome = Event(
                id=f"{command.id}-outcome",
                source="/tests/responder",
                type=event_type,
                subject=command.subject,
                replykey=command.replykey,
                data={**cause, **data},
            )
            topic = Topic.MEMORY_RESULTS if command.subject is None else Topic.NODE_RESULTS
            key = (command.subject or command.replykey or "a").encode()
            await self._publisher.publish([Record(topic, key, encode(outcome))])


async def test_an_outcome_is_found_although_it_came_before_the_wait(kafka: KafkaConnection, client: Client) -> None:
    async with (
        Responder(kafka, lambda _: ("memory.missing", {"version": 0})),
        Subscriber(kafka, [Topic.MEMORY_RESULTS]) as watcher,
    ):
        command = client.event(
            "memory.read", {"scope": "shared", "subject": "workflow-global", "key": "k", "type": "Date"}
        )
        await client.publish(command)
        await anext(aiter(watcher))

        outcome = await client.await_outcome(command.id)

        assert outcome.data["command_id"] == command.id
        assert await client.await_outcome(command.id) == outcome


async def test_a_write_is_written_or_conflicts_and_both_are_results(kafka: KafkaConnection, client: Client) -> None:
    def answer(command: Event) -> tuple[str, JsonObject]:
        if command.data["expected_version"] == 0:
            return "memory.written", {"version": 1, "expires_at": "2026-12-30T00:00:00Z"}
        return "memory.conflicted", {"expected_version": 7, "current_version": 1}

    async with Responder(kafka, answer):
        first = await client.write(
            "c", Decimal("100.00"), type="Decimal", subject=PATIENT, workflow="w", expected_version=0
        )
        second = await client.write("c", 5, type="Decimal", subject=PATIENT, workflow="w", expected_version=7)

    assert isinstance(first, MemoryWritten)
    assert isinstance(second, MemoryConflicted)
    assert second.current_version == 1


async def test_a_value_is_read_exactly_and_absence_is_a_result(kafka: KafkaConnection, client: Client) -> None:
    def answer(command: Event) -> tuple[str, JsonObject]:
        if command.data["key"] == "none":
            return "memory.missing", {"version": 0}
        times: JsonObject = {"written_at": "2026-11-30T00:00:00Z", "expires_at": "2026-12-30T00:00:00Z"}
        return "memory.found", {"value": Decimal("100.00"), "type": "Decimal", "version": 1, **times}

    async with Responder(kafka, answer):
        found = await client.read("creatinine", type="Decimal", subject=PATIENT, workflow="w")
        missing = await client.read("none", type="Decimal", subject=PATIENT, workflow="w")

    assert isinstance(found, MemoryFound)
    assert str(found.value) == "100.00"
    assert isinstance(missing, MemoryMissing)


async def test_a_refused_command_raises_its_code(kafka: KafkaConnection, client: Client) -> None:
    refused: JsonObject = {"code": "type_mismatch", "message": "a text is not an Integer"}
    async with Responder(kafka, lambda _: ("memory.rejected", refused)):
        with pytest.raises(Rejection) as caught:
            await client.increment("n", subject=PATIENT, scope="shared")

    assert caught.value.reason == "type_mismatch"


async def test_the_answer_of_a_request_is_found_by_its_id(kafka: KafkaConnection, client: Client) -> None:
    async with Responder(kafka, lambda _: ("condition.evaluated", {"result": True})):
        question = client.event("condition.evaluate", {"node_id": "n", "condition": "{{a}} == 1"}, subject="run-1")

        answer = await client.ask(question)

    assert answer.data["result"] is True


async def test_wrong_data_is_refused_before_anything_is_sent(client: Client) -> None:
    with pytest.raises(Rejection, match="did you mean expected_version"):
        await client.publish(client.event("memory.write", {"expected_versio": 1}))


async def test_no_outcome_in_time_names_what_to_look_at(client: Client) -> None:
    command = client.event("memory.forget", {"scope": "shared", "subject": "workflow-global", "key": "k"})
    await client.publish(command)

    with pytest.raises(DependencyDown, match=r"no outcome of .* within 0\.1 s"):
        await client.await_outcome(command.id, timeout_s=0.1)


async def test_an_id_that_was_not_published_here_is_a_mistake(client: Client) -> None:
    with pytest.raises(UsageError, match="tally await"):
        await client.await_outcome("somebody-elses")
