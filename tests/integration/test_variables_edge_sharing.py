"""Several workers share the partitions; partitions move, workers die, a dead one comes back."""

import asyncio
import re
import signal
from time import monotonic

import pytest

from schemas.envelope import Event
from schemas.exact_json import loads
from tests.support import stack
from tests.support.edge import (
    DEADLINE_S,
    SESSION_TIMEOUT_S,
    Edge,
    Worker,
    assert_table_is_right_or_behind,
    assert_whole,
    completed,
    event,
    started,
)
from topics.catalog import Topic


def wave(number: int, runs: int = 40) -> list[Event]:
    """Return one more step of each run."""
    names = [f"run-{run}" for run in range(runs)]
    if number == 0:
        return [started(name) for name in names]
    return [
        event(
            name,
            "variables.set",
            {"variables": {f"v{number}": number, "sum": f"{{{{sum}}}}{{{{v{number - 1}}}}};"}},
            str(number),
        )
        for name in names
    ]


def applied(log: str) -> int:
    return sum(int(count) for count in re.findall(r'"applied":(\d+)', log.replace(" ", "")))


async def until_busy(*workers: Worker) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not all(applied(worker.lines()) for worker in workers):
            await asyncio.sleep(0.2)


async def test_two_workers_share_the_partitions(variables: Edge) -> None:
    first, second = await variables.start_worker(), await variables.start_worker()
    await variables.publish(wave(0))
    await variables.drained()

    waves = wave(0)
    async with asyncio.timeout(60):
        while not (applied(first.lines()) and applied(second.lines())):
            waves += wave(len(waves) // 40)
            await variables.publish(waves[-40:])
            await variables.drained()

    await assert_whole(variables, waves)
    await assert_table_is_right_or_behind(variables)


@pytest.mark.slow
async def test_workers_that_join_die_and_wake_up_again_lose_and_repeat_nothing(variables: Edge) -> None:
    events: list[Event] = []
    tormented = asyncio.Event()

    async def publish_waves() -> None:
        number = 0
        while number < 30 or not tormented.is_set():
            events.extend(wave(number))
            await variables.publish(events[-40:])
            await asyncio.sleep(0.3)
            number += 1

    publishing = asyncio.create_task(publish_waves())
    zombie = await variables.start_worker(batch_size="20")
    victim = await variables.start_worker(batch_size="20")
    await until_busy(zombie, victim)
    zombie.signal(signal.SIGSTOP)
    await asyncio.sleep(SESSION_TIMEOUT_S + 2)
    zombie.signal(signal.SIGCONT)
    await asyncio.sleep(1)
    await victim.kill()
    newcomer = await variables.start_worker(batch_size="20")
    await until_busy(newcomer)
    assert await zombie.stop() == 0
    tormented.set()
    await publishing
    await variables.drained()

    await assert_whole(variables, events)
    assert await assert_table_is_right_or_behind(variables) > 0
    store = await variables.store("run-0")
    assert store is not None
    # Each wave read what the one before wrote: nothing was lost, doubled or taken out of order.
    assert loads(store.entries["v/sum"]) == "".join(
        f"{number};" if number else ";" for number in range(len(events) // 40 - 1)
    )


@pytest.mark.skipif(
    not stack.is_kafka(),
    reason="the embedded broker keeps a member that left until its session expires",
)
async def test_a_stopped_worker_leaves_the_group_at_once(variables: Edge) -> None:
    long_session = "60"
    worker = await variables.start_worker(kafka_session_timeout_s=long_session)
    await variables.publish(wave(0))
    await variables.drained()
    assert await worker.stop() == 0

    started_at = monotonic()
    follower = await variables.start_worker(kafka_session_timeout_s=long_session)
    await variables.publish(wave(1))
    await variables.drained()

    assert monotonic() - started_at < 45
    assert '"replayed":0' in follower.lines().replace(" ", "")
    assert '"behind":0' in follower.lines().replace(" ", "")


async def test_a_lost_changelog_costs_a_rebuild_and_nothing_else(variables: Edge) -> None:
    worker = await variables.start_worker()
    await variables.publish(wave(0) + wave(1))
    await variables.drained()
    assert await worker.stop() == 0

    await variables.make_anew(Topic.EXECUTIONS_TABLE)
    await variables.start_worker()
    await variables.publish(wave(2))
    await variables.drained()

    await assert_whole(variables, wave(0) + wave(1) + wave(2))
    store = await variables.store("run-7")
    assert store is not None
    assert loads(store.entries["v/sum"]) == ";1;"
    assert await assert_table_is_right_or_behind(variables) == 40


async def test_ended_executions_leave_the_table_and_take_late_events_all_the_same(variables: Edge) -> None:
    await variables.start_worker(ended_grace_s="0.2")
    await variables.publish([started("run"), completed("run", "one", value=1), event("run", "execution.completed", {})])
    await variables.drained()
    async with asyncio.timeout(30):
        while await variables.recovered():
            await asyncio.sleep(0.2)

    await variables.publish([completed("run", "late", value=2)])
    await variables.drained()

    store = await variables.store("run")
    assert store is not None
    assert loads(store.entries["v/late"]) == {"value": 2}
    finalized = [
        record.event
        for record in await variables.read(Topic.VARIABLE_UPDATES)
        if record.event.type == "execution.finalized"
    ]
    assert len(finalized) == 2
