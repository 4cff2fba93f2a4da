"""The Python client with a memory worker: what a program sees of items, races and conversations."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from schemas.errors import Rejection
from schemas.memory import MemoryConflictDetected, MemoryConflicted, MemoryForgotten, MemoryWritten
from tests.support.memory import TIMEOUT_S, memory_on
from topics.client import Client

CUSTOMER = ("customer", "c-1")


@pytest_asyncio.fixture
async def client(kafka_bootstrap_servers: str, database: str, topic_prefix: str) -> AsyncIterator[Client]:
    async with memory_on(kafka_bootstrap_servers, database, topic_prefix) as memory:
        await memory.start_worker()
        async with Client(memory.connection, source="/tests/app", timeout_s=TIMEOUT_S) as client:
            yield client


async def test_a_conversation_grows_is_read_listed_and_deleted(client: Client) -> None:
    talks = client.conversations("support")
    await talks.add("s-1", "user", "Is my permit ready?")
    added = await talks.add("s-1", "assistant", [{"type": "text", "text": "It is."}])
    await client.conversations("sales").add("s-1", "user", "another workflow's")
    await talks.add("s-2", "user", "hello")

    newest = await talks.get("s-1", limit=1, sort_order="desc")
    listed = await talks.get_all(sort_order="desc", filter_type="assistant")
    deleted, again = await talks.delete("s-1"), await talks.delete("s-1")
    gone = await talks.get("s-1")

    assert (added.success, added.count, added.memories[0].content) == (True, 2, "Is my permit ready?")
    assert [message.role for message in newest.memories] == ["assistant"]
    assert (newest.count, newest.total_count, newest.limit, newest.sort_order) == (1, 2, 1, "desc")
    assert [(record.key, record.type, len(record.data)) for record in listed.memories] == [("s-1", "agent", 1)]
    assert (listed.count, listed.total) == (1, 2)
    assert (deleted.success, again.success, gone.count, gone.total_count) == (True, False, 0, 0)


async def test_concurrent_adds_are_all_kept_in_one_order_that_everybody_sees(client: Client) -> None:
    talks = client.conversations("support")

    added = await asyncio.gather(*(talks.add("s-1", "user", f"message {number}") for number in range(40)))

    whole = [message.content for message in (await talks.get("s-1")).memories]
    assert sorted(map(str, whole)) == sorted(f"message {number}" for number in range(40))
    for outcome in added:
        assert [message.content for message in outcome.memories] == whole[: outcome.count]
    assert sorted(outcome.count for outcome in added) == list(range(1, 41))


async def test_a_refused_conversation_command_raises_its_code(client: Client) -> None:
    with pytest.raises(Rejection, match="role"):
        await client.conversations("support").add("s-1", "robot", "x")  # type: ignore[arg-type]
    with pytest.raises(Rejection) as caught:
        await client.conversations("").get("s-1")
    assert caught.value.reason == "data_invalid"


async def test_two_plain_clients_are_told_apart_in_a_race(client: Client) -> None:
    other = Client(client._connection, source="/tests/other", timeout_s=TIMEOUT_S)
    races: list[MemoryConflictDetected] = []

    async def watch() -> None:
        async for race in client.conflicts(start="beginning"):
            races.append(race)
            if len(races) == 3:
                return

    async with other:
        watching = asyncio.create_task(watch())
        first = await client.write("k", 1, type="Integer", subject=CUSTOMER, scope="shared", expected_version=0)
        second = await other.write("k", 2, type="Integer", subject=CUSTOMER, scope="shared", expected_version=0)
        third = await other.write("k", 3, type="Integer", subject=CUSTOMER, scope="shared", read_version=0)
        fourth = await client.forget("k", subject=CUSTOMER, scope="shared", expected_version=1)
        await asyncio.wait_for(watching, TIMEOUT_S)

    assert isinstance(first, MemoryWritten)
    assert isinstance(second, MemoryConflicted)
    assert isinstance(third, MemoryWritten)
    assert isinstance(fourth, MemoryConflicted)
    races.sort(key=lambda race: race.current_version)
    written = {outcome.command_id: outcome.command_source for outcome in (first, third)}
    for race, kind in zip(races, ("conditional_write", "lost_update", "conditional_write"), strict=True):
        assert race.kind == kind or race.current_version == 1
        assert race.current is not None
        assert race.current.writer is not None
        assert race.attempted.writer is not None
        assert written[race.current.writer.command_id or ""] == race.current.writer.command_source
        assert (race.attempted.writer.command_id, race.attempted.writer.command_source) == (
            race.command_id,
            race.command_source,
        )
    assert {race.kind for race in races} == {"conditional_write", "lost_update"}


async def test_a_merge_patch_tells_what_it_was_made_from(client: Client) -> None:
    item = {"type": "Json", "subject": CUSTOMER, "scope": "shared"}
    await client.write("profile", {"city": "Kiel"}, **item)  # type: ignore[arg-type]
    await client.write("profile", {"city": "Bonn"}, **item)  # type: ignore[arg-type]

    await client.update(
        "profile",
        "merge_patch",
        {"value": {"city": "Rome"}},
        type="Json",
        subject=CUSTOMER,
        scope="shared",
        read_version=1,
        ttl_seconds="keep",
    )

    async for race in client.conflicts(start="beginning"):
        assert (race.kind, race.overlapping_paths) == ("lost_update", ["/city"])
        break


async def test_an_unconditional_forget_is_always_done(client: Client) -> None:
    await client.increment("n", subject="workflow-global", scope="shared", ttl_seconds=60)

    forgotten = await client.forget("n", subject="workflow-global", scope="shared")

    assert isinstance(forgotten, MemoryForgotten)
    assert forgotten.existed
