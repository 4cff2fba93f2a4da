"""A whole torture run: parts, load, faults, rest, verdict."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka.errors import KafkaError

from tests.support.checker import Verdict, check
from tests.support.history import History
from tests.support.torture.capture import QUERIES, capture, positions
from tests.support.torture.clients import Load
from tests.support.torture.faults import Faults
from tests.support.torture.parts import KINDS, PARTITIONS, Parts, parts

#: What aiokafka says in the workers' logs, and what it shows.
_SAID = {
    "rebalances noticed": re.compile("because it is rebalancing"),
    "replaced while away": re.compile(
        "session expired|is not recognized|UnknownMemberId|IllegalGeneration|not a member"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a run is to be."""

    seed: int
    seconds: float
    logs: Path
    clients: int = 8
    runs_per_s: float = 1.5
    workers: int = 2
    pause_s: float = 1.5
    #: Kinds of faults (None: all), and of workers that they hit.
    faults: Sequence[str] | None = None
    victims: Sequence[str] = KINDS
    drain_s: float = 120.0
    kafka: str | None = None
    brokers: int = 1
    program: Sequence[str] = ("-m", "workers", "worker")


@dataclass(slots=True)
class Report:
    """What came of it."""

    plan: Plan
    verdict: Verdict
    history: History
    operations: Counter[str]
    faults: Counter[str]
    #: What shows that the faults bit.
    seen: Counter[str] = field(default_factory=Counter)
    surprises: list[str] = field(default_factory=list)
    #: What these parts cannot suffer, by name.
    left_out: Sequence[str] = ()
    lasted_s: float = 0.0

    def lines(self) -> list[str]:
        """Say it all."""

        def counted(counts: Counter[str]) -> str:
            return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"

        return [
            f"seed {self.plan.seed}, {self.lasted_s:.0f} s",
            f"operations: {self.operations.total()} ({counted(self.operations)})",
            f"faults: {self.faults.total()} ({counted(self.faults)})",
            *(f"left out: {fault}" for fault in self.left_out),
            f"seen: {counted(self.seen)}",
            *(f"surprise: {surprise}" for surprise in self.surprises),
            f"verdict: {self.verdict}",
        ]

    @property
    def passed(self) -> bool:
        """Whether every promise was kept and every worker ended as it should."""
        return self.verdict.holds and not self.surprises


async def torture(plan: Plan) -> Report:
    """Run, and judge."""
    began = time.monotonic()
    plan.logs.mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as exits:
        found = await exits.enter_async_context(
            parts(plan.logs, kafka=plan.kafka, brokers=plan.brokers, program=plan.program)
        )
        for kind in KINDS:
            for number in range(plan.workers):
                await found.place(kind, f"{kind}-{number}").start()
        watching = [asyncio.create_task(each) for each in (found.supervise(), found.watch())]
        faults = Faults(found, plan.seed, pause_s=plan.pause_s, kinds=plan.faults, victims=plan.victims)
        try:
            load = Load(found.connection, plan.seed, clients=plan.clients, runs_per_s=plan.runs_per_s)
            async with load:
                await _play(plan, faults, watching)
                await load.finish()
                await _rest(found, plan.drain_s)
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
        await _stop_workers(found)
        history = await capture(found.connection, found.postgres.dsn, PARTITIONS, load.history)
        verdict = check(history)
        seen = found.figures()
        seen += _log_lines(found)
        seen["copies of outcomes"] = verdict.counts["outcome copies"] - verdict.counts["commands"]
        seen["unanswered for a minute"] = load.unanswered
        return Report(
            plan,
            verdict,
            history,
            load.counts,
            faults.counts,
            seen,
            found.surprises,
            faults.left_out,
            time.monotonic() - began,
        )


async def _play(plan: Plan, faults: Faults, watching: Sequence[asyncio.Task[None]]) -> None:
    """Let the faults come for as long as planned."""
    schedule = asyncio.create_task(faults.run())
    done, _ = await asyncio.wait([schedule, *watching], timeout=plan.seconds, return_when=asyncio.FIRST_COMPLETED)
    schedule.cancel()
    with suppress(asyncio.CancelledError):
        await schedule
    for task in done:
        task.result()
    await faults.heal()


async def _rest(found: Parts, drain_s: float) -> None:
    """Wait until everything is read and nothing new comes; what then is open, the checker finds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(drain_s):
            before = None
            while True:
                with suppress(KafkaError, OSError):
                    now = await positions(found.connection, PARTITIONS)
                    session = await found.session()
                    unpublished = await session.fetchval(QUERIES["unpublished"])
                    await session.close()
                    if now.lag == 0 and not unpublished and before == now:
                        return
                    before = now
                await asyncio.sleep(1)


async def _stop_workers(found: Parts) -> None:
    await asyncio.gather(*(found.stop(worker) for worker in found.workers.values() if worker.running))


def _log_lines(found: Parts) -> Counter[str]:
    """Count what the workers' logs say about their groups."""
    counts: Counter[str] = Counter()
    for worker in found.workers.values():
        text = worker.log.read_text(errors="replace") if worker.log.exists() else ""
        for name, pattern in _SAID.items():
            counts[name] += len(pattern.findall(text))
    return counts
