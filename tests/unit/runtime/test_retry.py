"""Trying again in place."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import DependencyDown, Fenced, Rejection
from workers.runtime.health import Health
from workers.runtime.retry import Stopping, pause_s, retry


class Flaky:
    """Fails with each of `errors`, then works."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.health = Health("worker", ("database",))
        self.seen: list[bool] = []

    async def __call__(self) -> str:
        self.seen.append(self.health.ready)
        if self.errors:
            raise self.errors.pop(0)
        return "done"


DOWN = DependencyDown("PostgreSQL", "here", "refused")


async def run(action: Flaky, stop: asyncio.Event | None = None) -> str:
    return await retry(action, name="database", health=action.health, stop=stop or asyncio.Event(), jitter=lambda: 0.0)


async def test_a_dependency_that_comes_back_is_waited_for_in_place() -> None:
    action = Flaky(DOWN, DOWN)

    assert await run(action) == "done"

    assert action.health.ready


async def test_readiness_is_red_while_a_dependency_is_down() -> None:
    action = Flaky(DOWN)
    action.health.green("database")

    await run(action)

    assert action.seen == [True, False]


async def test_a_race_is_no_outage() -> None:
    action = Flaky(*[Fenced("faster")] * 5)
    action.health.green("database")

    await run(action)

    assert action.seen == [True] * 6


async def test_races_without_end_are_one() -> None:
    action = Flaky(*[Fenced("faster")] * 6)
    action.health.green("database")

    await run(action)

    assert action.seen == [True] * 6 + [False]


@pytest.mark.parametrize("error", [Rejection("malformed", "no"), RuntimeError("a bug")])
async def test_what_trying_again_does_not_help_passes_through(error: Exception) -> None:
    with pytest.raises(type(error)):
        await run(Flaky(error))


async def test_a_stop_ends_the_waiting_and_does_not_claim_success() -> None:
    stop = asyncio.Event()
    stop.set()

    with pytest.raises(Stopping, match="database"):
        await run(Flaky(DOWN), stop)


@given(attempt=st.integers(1, 10_000), jitter=st.floats(0, 1))
def test_pauses_grow_and_stay_bounded(attempt: int, jitter: float) -> None:
    assert 0.01 <= pause_s(attempt, jitter) <= 5.0
    assert pause_s(attempt + 1, jitter) >= pause_s(attempt, jitter)


async def test_an_attempt_that_does_not_end_is_not_unseen() -> None:
    health = Health("worker", ("database",))
    health.green("database")
    reasons: list[str] = []

    async def hang() -> str:
        while health.ready:
            await asyncio.sleep(0.01)
        reasons.append(health.checks["database"].reason)
        return "done"

    assert await retry(hang, name="database", health=health, stop=asyncio.Event(), patience_s=0.02) == "done"

    assert reasons == ["no end of what was begun more than 0.02 s ago"]
    assert health.ready
