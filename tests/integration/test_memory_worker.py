"""The memory worker end to end: commands on Kafka, compare-and-set in PostgreSQL, outcomes on Kafka."""

from collections.abc import AsyncIterator

import pytest_asyncio

from schemas.registry import parse
from tests.support.memory import Memory, command, conversation, memory_on
from topics.catalog import Topic


@pytest_asyncio.fixture
async def memory(kafka_bootstrap_servers: str, database: str, topic_prefix: str) -> AsyncIterator[Memory]:
    async with memory_on(kafka_bootstrap_servers, database, topic_prefix) as memory:
        await memory.start_worker(purge_interval_s=0.5)
        yield memory


async def test_two_reservations_of_one_key_give_one_winner_and_one_reported_race(memory: Memory) -> None:
    first = command(run="run-1", type="String", value="value-1", expected_version=0)
    second = command(run="run-2", type="String", value="value-2", expected_version=0)

    written, conflicted = await memory.ask(first, second)

    assert (written.type, written.data["version"], written.subject) == ("memory.written", 1, "run-1")
    assert (conflicted.type, conflicted.data["current_version"]) == ("memory.conflicted", 1)
    (found,) = await memory.ask(command("memory.read", type="String"))
    assert (found.data["value"], found.data["version"]) == ("value-1", 1)
    (conflict,) = await memory.events(Topic.MEMORY_CONFLICTS)
    assert conflict.data["current"]["writer"] == {"execution_id": "run-1"}  # type: ignore[index,call-overload]
    assert conflict.data["attempted"]["writer"] == {"execution_id": "run-2"}  # type: ignore[index,call-overload]


async def test_every_event_that_the_worker_publishes_fits_its_model(memory: Memory) -> None:
    await memory.ask(
        command(type="Json", value={"a": 1}),
        command(type="Json", value={"b": 1}, expected_version=0),
        command("memory.update", type="Json", operation="merge_patch", value={"c": 1}),
        command("memory.read", type="Json"),
        command("memory.read", type="Integer"),
        command("memory.forget"),
        command("memory.read", type="Json"),
        conversation("add", id="s-1", role="user", content="hello"),
        conversation("get", id="s-1"),
        conversation("get_all"),
        conversation("delete", id="s-1"),
    )

    for topic in (Topic.MEMORY_RESULTS, Topic.MEMORY_CONFLICTS, Topic.MEMORY_CHANGES):
        for event in await memory.events(topic):
            parse(event)
