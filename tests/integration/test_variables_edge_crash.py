"""A worker that dies at any point of a batch loses nothing and applies nothing twice."""

import pytest

from schemas.envelope import Event
from tests.support.edge import (
    Edge,
    assert_table_is_right_or_behind,
    assert_whole,
    completed,
    ended,
    event,
    started,
)
from topics.catalog import Topic

CRASH_POINTS = ("before_commit", "after_commit", "after_publish", "after_changelog")


def some_runs(count: int) -> list[Event]:
    events: list[Event] = []
    for number in range(count):
        name = f"run-{number}"
        events.append(started(name))
        events += [completed(name, f"step-{step}", value=step, text="x" * 50) for step in range(4)]
        events.append(event(name, "condition.evaluate", {"node_id": "enough", "condition": "{{step-1.value}} > 0"}))
        if number % 2:
            events.append(ended(name))
    return events


async def test_work_goes_on_from_what_was_committed_when_the_table_is_behind(variables: Edge) -> None:
    first = [started("run"), completed("run", "one", value=1)]
    worker = await variables.start_worker(crash_at="after_commit")
    await variables.publish(first)
    assert await worker.exit_code() == 137

    second = [event("run", "variables.set", {"variables": {"seen": "{{one.value}}"}})]
    await variables.start_worker()
    await variables.publish(second)
    await variables.drained()

    store = await variables.store("run")
    assert store is not None
    assert store.entries["v/seen"] == b"1"
    await assert_whole(variables, first + second)
    assert await assert_table_is_right_or_behind(variables) == 1


@pytest.mark.parametrize("point", CRASH_POINTS)
async def test_a_kill_at_any_point_neither_loses_nor_repeats(variables: Edge, point: str) -> None:
    events = some_runs(60)

    # Small batches, so that the third is in the middle.
    worker = await variables.start_worker(crash_at=f"{point}:3", batch_size="50", ended_grace_s="3600")
    await variables.publish(events)
    assert await worker.exit_code() == 137
    await variables.start_worker(batch_size="50", ended_grace_s="3600")
    await variables.drained()

    await assert_whole(variables, events)
    assert await assert_table_is_right_or_behind(variables) > 0


async def test_a_kill_while_the_table_is_recovered_neither_loses_nor_repeats(variables: Edge) -> None:
    events = some_runs(60)
    worker = await variables.start_worker(ended_grace_s="3600")
    await variables.publish(events[:200])
    await variables.drained()
    await worker.kill()

    recovering = await variables.start_worker(crash_at="in_recovery", ended_grace_s="3600")
    await variables.publish(events[200:])
    assert await recovering.exit_code() == 137
    await variables.start_worker(ended_grace_s="3600")
    await variables.drained()

    await assert_whole(variables, events)
    assert await assert_table_is_right_or_behind(variables) > 0


@pytest.mark.parametrize("passing", [3, 4])
async def test_a_kill_while_partitions_move_neither_loses_nor_repeats(variables: Edge, passing: int) -> None:
    """It joined in the first two passes; the third gives its partitions back, the fourth gets what is left of them."""
    events = some_runs(60)
    worker = await variables.start_worker(crash_at=f"in_rebalance:{passing}", ended_grace_s="3600")
    await variables.publish(events[:200])
    await variables.drained()

    await variables.start_worker(ended_grace_s="3600")
    await variables.publish(events[200:])
    assert await worker.exit_code() == 137
    await variables.drained()

    await assert_whole(variables, events)
    assert await assert_table_is_right_or_behind(variables) > 0


async def test_a_dead_letter_that_a_crash_swallowed_is_sent_at_the_next_delivery(variables: Edge) -> None:
    refused = event("run", "execution.started", {"workflow": {"name": "other"}, "input": {}}, "again")
    worker = await variables.start_worker(crash_at="after_commit")
    await variables.publish([started("run"), refused])
    assert await worker.exit_code() == 137
    assert await variables.read(Topic.DEAD_LETTERS) == []

    await variables.start_worker()
    await variables.drained()

    letters = [record.event for record in await variables.read(Topic.DEAD_LETTERS)]
    assert [letter.data["code"] for letter in letters] == ["already_started"]
