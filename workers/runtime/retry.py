"""Try again in place until it works: a dependency that is down must not lose, skip or acknowledge anything."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from schemas.errors import DependencyDown, TallyError
from workers.runtime.health import Health
from workers.runtime.logs import batch_logger

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 5.0
#: Races with other workers are daily business; so many in a row are something to look at.
_RACES_BEFORE_RED = 5
#: An attempt may take longer, where somebody holds a lock or a broker has stopped without a word: not unseen.
_PATIENCE_S = 10.0

Result = TypeVar("Result")


class Stopping(TallyError):  # noqa: N818
    """The worker was asked to stop while it waited for a dependency; what was tried is not done."""

    code = "stopping"


async def retry(
    action: Callable[[], Awaitable[Result]],
    *,
    name: str,
    health: Health,
    stop: asyncio.Event,
    jitter: Callable[[], float] = random.random,
    patience_s: float | None = _PATIENCE_S,
) -> Result:
    """Run `action` until it succeeds, through every retriable error, with growing pauses in between.

    The check `name` of `health` is red while a dependency is down, and from `patience_s` on while an attempt lasts
    (None: it may last). `jitter` gives 0 to 1: workers that failed together do not return together. Raises `Stopping`
    when `stop` is set before success; other errors pass through.
    """
    attempt = 0
    while True:
        try:
            with _watched(health, name, patience_s):
                result = await action()
        except TallyError as error:
            if not error.retriable:
                raise
            attempt += 1
            health.metrics.retries.labels(health.worker, error.code).inc()
            if isinstance(error, DependencyDown) or attempt > _RACES_BEFORE_RED:
                health.red(name, str(error))
                _tell(health.worker, name, attempt, error)
            if stop.is_set():
                raise Stopping(f"stopped while {name} was failing: {error}") from error
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause_s(attempt, jitter()))
        else:
            health.green(name)
            return result


@contextmanager
def _watched(health: Health, name: str, patience_s: float | None) -> Iterator[None]:
    """Turn the check `name` red when the block takes longer than `patience_s`, whatever others find meanwhile."""
    if patience_s is None:
        yield
        return
    loop = asyncio.get_running_loop()
    watch: asyncio.TimerHandle

    def look() -> None:
        nonlocal watch
        health.red(name, f"no end of what was begun more than {patience_s:g} s ago")
        watch = loop.call_later(patience_s, look)

    watch = loop.call_later(patience_s, look)
    try:
        yield
    finally:
        watch.cancel()


def pause_s(attempt: int, jitter: float) -> float:
    """Return the pause after the `attempt`-th failure: it doubles from 20 ms to 5 s, of which `jitter` takes half."""
    longest: float = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(attempt - 1, 16))
    return longest * (0.5 + 0.5 * jitter)


def _tell(worker: str, name: str, attempt: int, error: TallyError) -> None:
    """Log the first failure and each power of two: a dependency that is down for an hour gives a dozen lines."""
    if attempt & (attempt - 1) == 0:
        batch_logger(worker).warning(
            "retrying", action="retry", name=name, attempt=attempt, code=error.code, cause=str(error)
        )
