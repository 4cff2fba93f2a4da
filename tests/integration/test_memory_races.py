"""Several workers, killed workers, lost sessions: each command takes effect once, with one outcome."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from schemas.exact_json import loads
from tests.support.memory import TIMEOUT_S, Memory, command, memory_on, until
from topics.catalog import Topic
from topics.codec import decode


@pytest_asyncio.fixture
async def memory(kafka_bootstrap_servers: str, database: str, topic_prefix: str) -> AsyncIterator[Memory]:
    async with memory_on(kafka_bootstrap_servers, database, topic_prefix) as memory:
        yield memory


async def test_of_two_workers_that_meet_on_one_address_exactly_one_wins_fifty_times(memory: Memory) -> None:
    """dapr/components-contrib#994."""
    await memory.start_worker()
    await memory.start_worker()
    await memory.members(2)
    rounds = range(50)
    writes = [
        [
            command(
                run=f"run-{side}-{number}",
                key=f"round-{number}",
                type="String",
                value=f"value-{side}",
                expected_version=0,
            )
            for number in rounds
        ]
        for side in (1, 2)
    ]

    await asyncio.gather(memory.publish(*writes[0], partition=0), memory.publish(*writes[1], partition=1))
    outcomes = await memory.outcomes([event.id for side in writes for event in side])
    reads = [command("memory.read", key=f"round-{number}", type="String") for number in rounds]
    found = await memory.ask(*reads)

    conflicts = defaultdict(list)
    for event in await memory.events(Topic.MEMORY_CONFLICTS):
        conflicts[event.data["address"]].append(event.data)
    for number in rounds:
        pair = [outcomes[side[number].id] for side in writes]
        winner = [event for event in pair if event.type == "memory.written"]
        loser = [event for event in pair if event.type == "memory.conflicted"]
        assert [event.data["version"] for event in winner] == [1]
        assert [event.data["current_version"] for event in loser] == [1]
        assert found[number].data["value"] == f"value-{winner[0].subject.split('-')[1]}"
        (conflict,) = conflicts[f"default/workflow/onboarding/patient/p1/round-{number}"]
        assert conflict["current"]["writer"]["execution_id"] == winner[0].subject
        assert conflict["attempted"]["writer"]["execution_id"] == loser[0].subject


async def test_of_two_contradicting_facts_at_once_the_newer_stays_and_the_older_is_kept_as_superseded(
    memory: Memory,
) -> None:
    """mem0#4536: both writers had seen nothing; neither fact is lost, and everybody sees the same one as the newest."""
    await memory.start_worker()
    await memory.start_worker()
    await memory.members(2)
    rounds = range(30)
    facts = [
        [
            command(run=f"run-{side}-{number}", key=f"fact-{number}", type="String", value=side, read_version=0)
            for number in rounds
        ]
        for side in ("likes tea", "likes coffee")
    ]

    await asyncio.gather(memory.publish(*facts[0], partition=0), memory.publish(*facts[1], partition=1))
    outcomes = await memory.outcomes([event.id for side in facts for event in side])
    found = await memory.ask(*(command("memory.read", key=f"fact-{number}", type="String") for number in rounds))
    history = await memory.fetch("SELECT address, version, value FROM memory_history ORDER BY address, version")

    lost = {event.data["address"]: event.data for event in await memory.events(Topic.MEMORY_CONFLICTS)}
    kept = defaultdict(list)
    for row in history:
        kept[row["address"]].append(loads(row["value"]))
    assert len(lost) == len(rounds)
    for number in rounds:
        older, newer = sorted((side[number] for side in facts), key=lambda event: outcomes[event.id].data["version"])
        address = f"default/workflow/onboarding/patient/p1/fact-{number}"
        assert kept[address] == [older.data["value"], newer.data["value"]]
        assert (found[number].data["value"], found[number].data["version"]) == (newer.data["value"], 2)
        superseded = lost[address]
        assert (superseded["kind"], superseded["resolution"]) == ("lost_update", "overwritten")
        assert superseded["current"]["value"] == older.data["value"]
        assert superseded["current"]["writer"] == {"execution_id": older.subject}


async def test_the_newest_state_lies_last_in_the_compacted_topic_though_two_workers_changed_it(memory: Memory) -> None:
    await memory.start_worker()
    await memory.start_worker()
    await memory.members(2)
    increments = [
        [command("memory.update", type="Integer", operation="increment") for _ in range(300)] for _ in range(2)
    ]

    async def publish(side: int) -> None:
        for start in range(0, 300, 20):
            await memory.publish(*increments[side][start : start + 20], partition=side)

    await asyncio.gather(publish(0), publish(1))
    await memory.outcomes([event.id for side in increments for event in side])

    async def newest_is_last() -> bool | None:
        return True if (await memory.events(Topic.MEMORY_CHANGES))[-1].data["value"] == 600 else None

    await until(newest_is_last)


@pytest.mark.parametrize("point", ["before_commit", "after_commit", "after_publish"])
async def test_a_worker_killed_at_any_point_applies_each_command_once(memory: Memory, point: str) -> None:
    first = command(run="run-1", key="conditional", type="Integer", value=1, expected_version=0)
    increments = [command("memory.update", type="Integer", operation="increment") for _ in range(200)]
    chain = [
        command(run="run-1", key="chain", type="Integer", value=number, expected_version=number) for number in range(50)
    ]
    events = [first, *increments, *chain]
    await memory.publish(*events)

    process = await memory.start_worker(crash_at=f"{point}:2", batch_size=100)
    assert await asyncio.wait_for(process.wait(), TIMEOUT_S) == 137
    await memory.start_worker(batch_size=100)

    outcomes = await memory.outcomes([event.id for event in events])
    assert outcomes[first.id].type == "memory.written"
    assert [outcomes[event.id].data["version"] for event in increments] == list(range(1, 201))
    assert [outcomes[event.id].data.get("version") for event in chain] == list(range(1, 51))
    assert await memory.events(Topic.MEMORY_CONFLICTS) == []
    await _nothing_is_left_over(memory, len(events))
    if point == "after_publish":
        copies = Counter(outcome for _, outcome in await memory.records(Topic.MEMORY_RESULTS))
        assert max(copies.values()) == 2


async def test_a_worker_killed_while_it_answers_for_a_killed_one_applies_each_command_once(memory: Memory) -> None:
    increments = [command("memory.update", type="Integer", operation="increment") for _ in range(200)]
    await memory.publish(*increments)
    for point in ("after_commit", "in_recovery"):
        process = await memory.start_worker(crash_at=point, batch_size=100)
        assert await asyncio.wait_for(process.wait(), TIMEOUT_S) == 137
    await memory.start_worker(batch_size=100)

    outcomes = await memory.outcomes([event.id for event in increments])
    assert [outcomes[event.id].data["version"] for event in increments] == list(range(1, 201))
    await _nothing_is_left_over(memory, len(increments))


@pytest.mark.parametrize("passing", [3, 4])
async def test_a_worker_killed_while_partitions_move_applies_each_command_once(memory: Memory, passing: int) -> None:
    """It joined in the first two passes; the third gives its partitions back, the fourth gets what is left of them."""
    increments = [command("memory.update", type="Integer", operation="increment") for _ in range(300)]
    process = await memory.start_worker(crash_at=f"in_rebalance:{passing}", batch_size=20)
    await memory.publish(*increments[:20])
    await memory.outcomes([event.id for event in increments[:20]])

    await memory.start_worker(batch_size=20)
    await memory.publish(*increments[20:])
    assert await asyncio.wait_for(process.wait(), TIMEOUT_S) == 137

    outcomes = await memory.outcomes([event.id for event in increments])
    assert [outcomes[event.id].data["version"] for event in increments] == list(range(1, 301))
    await _nothing_is_left_over(memory, len(increments))


async def _nothing_is_left_over(memory: Memory, commands: int) -> None:
    """The oracles at rest: one row a command, copies byte for byte the same, a whole history, positions at the end."""
    (row,) = await memory.fetch("SELECT count(*) FROM memory_outcomes")
    assert row["count"] == commands
    bodies: defaultdict[str, set[bytes]] = defaultdict(set)
    for topic in (Topic.MEMORY_RESULTS, Topic.MEMORY_CONFLICTS, Topic.MEMORY_CHANGES):
        for _, value in await memory.records(topic):
            if value is not None:
                bodies[decode(value, ()).id].add(value)
    assert {event: len(found) for event, found in bodies.items() if len(found) > 1} == {}
    broken = await memory.fetch(
        """SELECT i.address FROM memory_items i LEFT JOIN memory_versions v USING (address)
            GROUP BY i.address, i.version
           HAVING count(v.version) <> i.version OR coalesce(max(v.version), 0) <> i.version"""
    )
    assert broken == []
    positions = {row["partition"]: row["next_offset"] for row in await memory.fetch("SELECT * FROM consumer_positions")}

    async def acknowledged() -> bool | None:
        return True if await memory.committed() == positions else None

    await until(acknowledged)
    assert sum(positions.values()) == commands


async def test_one_id_under_two_addresses_at_once_is_decided_once(memory: Memory) -> None:
    await memory.start_worker()
    await memory.start_worker()
    await memory.members(2)
    pairs = [
        [command(event_id=f"same-{number}", key=f"key-{number}-{side}", type="Integer", value=side) for side in (0, 1)]
        for number in range(50)
    ]

    await asyncio.gather(
        memory.publish(*(pair[0] for pair in pairs), partition=0),
        memory.publish(*(pair[1] for pair in pairs), partition=1),
    )

    async def letters() -> list[object] | None:
        found = await memory.events(Topic.DEAD_LETTERS)
        return [event.data["code"] for event in found] if len(found) >= 50 else None

    assert await until(letters) == ["id_reused"] * 50
    (row,) = await memory.fetch("SELECT count(*) AS outcomes FROM memory_outcomes")
    (items,) = await memory.fetch("SELECT count(*) AS live FROM memory_items WHERE value IS NOT NULL")
    assert (row["outcomes"], items["live"]) == (50, 50)
