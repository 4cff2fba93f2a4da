"""Rounds: each contender does the same work in turn, so that a busy machine is busy for all of them."""

from collections.abc import Sequence
from typing import Protocol

from bench.figures import Series


class Contender(Protocol):
    """Someone who does a round's work. `prepare` is not timed; `run` returns the seconds that the work took."""

    name: str

    async def prepare(self) -> None:
        """Make the next round's input."""

    async def run(self) -> float:
        """Do the work."""


async def race(contenders: Sequence[Contender], events: int, rounds: int) -> list[Series]:
    """Let every contender do one round to warm up, then `rounds` that count; return events per second."""
    rates: list[list[float]] = [[] for _ in contenders]
    for number in range(rounds + 1):
        for contender, found in zip(contenders, rates, strict=True):
            await contender.prepare()
            seconds = await contender.run()
            if number:
                found.append(events / seconds)
    return [Series(c.name, "events/s", tuple(found)) for c, found in zip(contenders, rates, strict=True)]
