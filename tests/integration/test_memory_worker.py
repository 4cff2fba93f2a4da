"""The memory worker end to end: commands on Kafka, compare-and-set in PostgreSQL, outcomes on Kafka."""

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio
from msgspec.structs import replace

from schemas.envelope import Event
from schemas.exact_json import dumps, loads
from schemas.registry import parse
from tests.support.memory import TIMEOUT_S, Memory, command, conversation, memory_on, until
from topics.catalog import Topic
from topics.codec import decode
from topics.records import Record


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


async def test_an_item_whose_time_is_over_is_missing_at_once_and_its_version_is_never_used_again(
    memory: Memory,
) -> None:
    """mattermost#13656."""
    await memory.ask(command(type="String", value="short", ttl=1, ttl_unit="seconds"))

    async def missing() -> Event | None:
        (read,) = await memory.ask(command("memory.read", type="String"))
        return read if read.type == "memory.missing" else None

    read = await until(missing)
    stale, fresh = await memory.ask(
        command(type="String", value="stale", expected_version=1),
        command(type="String", value="fresh", expected_version=0),
    )

    assert read.data["version"] == 0
    assert (stale.type, stale.data["current_version"]) == ("memory.conflicted", 0)
    assert (fresh.type, fresh.data["version"]) == ("memory.written", 2)


async def test_an_expired_item_is_purged_and_a_tombstone_is_last_in_the_compacted_topic(memory: Memory) -> None:
    await memory.ask(command(type="String", value="short", ttl=1, ttl_unit="seconds"))

    async def expired() -> list[tuple[bytes | None, bytes | None]] | None:
        records = await memory.records(Topic.MEMORY_CHANGES)
        return records if records[-1][1] is None else None

    _, (_, state), (key, _) = await until(expired)
    assert state is not None
    event = decode(state, ())
    assert (event.data["change"], event.data["sequence"], event.data["version"]) == ("expired", 2, 0)
    assert key == b"default/workflow/onboarding/patient/p1/stage"

    async def struck_off() -> bool | None:
        return None if await memory.fetch("SELECT FROM memory_unpublished") else True

    await until(struck_off)
    (item,) = await memory.fetch("SELECT value, version FROM memory_items")
    assert (item["value"], item["version"]) == (None, 1)
    assert await memory.fetch("SELECT FROM memory_versions") == []


async def test_an_expiry_that_was_committed_is_published_though_the_worker_was_killed_in_between(
    kafka_bootstrap_servers: str, database: str, topic_prefix: str
) -> None:
    async with memory_on(kafka_bootstrap_servers, database, topic_prefix) as memory:
        process = await memory.start_worker(purge_interval_s=0.5, crash_at="before_publishing_expiry")
        await memory.ask(command(type="String", value="short", ttl=1, ttl_unit="seconds"))
        assert await asyncio.wait_for(process.wait(), TIMEOUT_S) == 137
        assert (await memory.records(Topic.MEMORY_CHANGES))[-1][1] is not None
        await memory.start_worker()

        async def expired() -> bool | None:
            return True if (await memory.records(Topic.MEMORY_CHANGES))[-1][1] is None else None

        await until(expired)


async def test_what_cannot_be_accepted_is_a_dead_letter_and_the_partition_moves_on(memory: Memory) -> None:
    reused = command(event_id="reused", type="Integer", value=1)
    garbage = [b"no json", b'{"specversion":"1.0"}', b'"\\ud835"', None]
    await memory.publish(reused)
    await memory.publisher.publish(Record(Topic.MEMORY_COMMANDS, b"key", value, (), 0) for value in garbage)
    await memory.publish(
        command("memory.remember", type="Integer", value=1),
        command(event_id="reused", type="Integer", value=2),
    )

    (found,) = await memory.ask(command("memory.read", type="Integer"))

    assert found.data["value"] == 1
    letters = await memory.events(Topic.DEAD_LETTERS)
    assert sorted(str(letter.data["code"]) for letter in letters) == [
        "envelope_invalid",
        "id_reused",
        "malformed",
        "malformed",
        "malformed",
        "unknown_type",
    ]


async def test_a_command_that_breaks_a_rule_is_answered(memory: Memory) -> None:
    rejected, silent = await memory.ask(
        command(type="Integer", value="one"), command(type="Integer", value=1, conditional=True)
    )

    assert (rejected.type, rejected.data["code"]) == ("memory.rejected", "type_mismatch")
    assert (silent.type, silent.data["code"]) == ("memory.rejected", "expected_version_required")


async def test_values_come_back_to_the_byte(memory: Memory) -> None:
    """camunda#12473, kestra#10326."""
    value = loads(b'{"a":100.00,"b":12345678901234567890,"c":"\\u0000","d":0.1234567890123456789,"e":1e5}')
    _, found = await memory.ask(command(type="Json", value=value), command("memory.read", type="Json"))

    assert dumps(found.data["value"]) == dumps(value)
    assert b'"a":100.00,"b":12345678901234567890' in dumps(found.data["value"])


async def test_conversations_are_kept_by_workflow(memory: Memory) -> None:
    *_, got, listed, deleted = await memory.ask(
        conversation("add", id="s-1", role="user", content="hello"),
        conversation("add", id="s-1", role="assistant", content="hi"),
        conversation("add", id="s-2", role="user", content="other"),
        conversation("get", id="s-1", limit=1, sort_order="desc"),
        conversation("get_all"),
        conversation("delete", id="s-2"),
    )

    assert got.data["memories"] == [{"role": "assistant", "content": "hi"}]
    assert (listed.data["count"], listed.data["address"]) == (2, "default/workflow/support/conversation/-/messages")
    assert deleted.data["success"] is True


async def test_the_trace_context_is_passed_on(memory: Memory) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    await memory.ask(replace(command(type="Integer", value=1), traceparent=trace))

    events = [*await memory.events(Topic.MEMORY_RESULTS), *await memory.events(Topic.MEMORY_CHANGES)]
    assert {event.traceparent for event in events} == {trace}
