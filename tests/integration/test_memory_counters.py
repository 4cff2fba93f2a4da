"""Hot counters: the sum is exact, whatever is killed while it is counted (robinhood/faust#340)."""

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from time import monotonic

import pytest
import pytest_asyncio

from schemas.exact_json import loads
from tests.support.memory import Memory, command, memory_on, until
from topics.catalog import Topic

PARTITIONS = 3
_CHUNK = 2_000
_KILLS = 3


@pytest_asyncio.fixture
async def memory(kafka_bootstrap_servers: str, database: str, topic_prefix: str) -> AsyncIterator[Memory]:
    async with memory_on(kafka_bootstrap_servers, database, topic_prefix, partitions=PARTITIONS) as memory:
        yield memory


@pytest.mark.parametrize(
    ("total", "workers", "batch_size"),
    [
        pytest.param(4_000, 1, 50, id="4,000"),
        pytest.param(300_000, 2, 500, id="300,000", marks=[pytest.mark.large, pytest.mark.timeout(1800)]),
    ],
)
async def test_increments_survive_kills_of_workers_and_of_their_sessions(
    memory: Memory, total: int, workers: int, batch_size: int
) -> None:
    began = monotonic()
    processes = [await memory.start_worker(batch_size=batch_size, log_level="WARNING") for _ in range(workers)]
    await memory.members(workers)
    done = asyncio.Event()

    async def kill_workers() -> None:
        """One after the other, whenever another part of the work is done."""
        for kill in range(_KILLS):
            await until(lambda kill=kill: _applied(memory, (kill + 1) * total // (_KILLS + 2)), timeout_s=600)
            await memory.kill(processes[kill % workers])
            processes[kill % workers] = await memory.start_worker(batch_size=batch_size, log_level="WARNING")
        done.set()

    async def kill_sessions() -> None:
        while not done.is_set():
            await memory.fetch(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tally-memory'"
            )
            await asyncio.sleep(total / 20_000)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_publish(memory, total))
        tasks.create_task(kill_workers())
        tasks.create_task(kill_sessions())
    await until(lambda: _applied(memory, total - 1), timeout_s=900)

    (found,) = await memory.ask(command("memory.read", type="Integer"))
    assert (found.data["value"], found.data["version"]) == (total, total)
    versions = await until(lambda: _versions(memory, total))
    assert sorted(versions.values()) == list(range(1, total + 1))
    print(f"{total:,} increments by {workers} workers, killed {_KILLS} times: {monotonic() - began:.0f} s")


async def _publish(memory: Memory, total: int) -> None:
    lanes = count()
    for start in range(0, total, _CHUNK):
        chunk = [
            command("memory.update", event_id=f"increment-{number}", type="Integer", operation="increment")
            for number in range(start, min(total, start + _CHUNK))
        ]
        await memory.publish(*chunk, partition=next(lanes) % PARTITIONS)


async def _applied(memory: Memory, more_than: int) -> bool | None:
    (row,) = await memory.fetch("SELECT coalesce(sum(next_offset), 0) AS applied FROM consumer_positions")
    return True if row["applied"] > more_than else None


async def _versions(memory: Memory, total: int) -> dict[str, int] | None:
    """Return which version each increment made, as it was published, once all are; none has two outcomes."""
    found: dict[str, int] = {}
    for _, value in await memory.records(Topic.MEMORY_RESULTS):
        data = loads(value or b"")["data"]  # type: ignore[call-overload,index]
        if "value" in data and str(data["command_id"]).startswith("increment-"):
            assert found.setdefault(data["command_id"], data["version"]) == data["version"]
    return found if len(found) == total else None
