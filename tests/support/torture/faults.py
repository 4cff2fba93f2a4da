"""What is done to the parts, by seed."""

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from random import Random

import asyncpg

from tests.support.torture.capture import QUERIES
from tests.support.torture.parts import KINDS, SESSION_TIMEOUT_S, Parts, Worker

POINTS = {
    "variables": ("before_commit", "after_commit", "after_publish", "after_changelog", "in_recovery", "in_rebalance"),
    "memory": (
        "before_commit",
        "after_commit",
        "after_publish",
        "before_publishing_expiry",
        "in_recovery",
        "in_rebalance",
    ),
}
#: Points that few passes lead to, with the last pass that is worth waiting for; the others are passed by every batch.
SELDOM_PASSED = {"before_publishing_expiry": 1, "in_recovery": 2, "in_rebalance": 4}
Fault = Callable[[], Awaitable[None]]


class Faults:
    """A schedule that goes on until it is cancelled; what lasts (a pause, a broker that is down) runs beside it."""

    def __init__(
        self,
        parts: Parts,
        seed: int,
        *,
        pause_s: float,
        kinds: Sequence[str] | None = None,
        victims: Sequence[str] = KINDS,
    ) -> None:
        self._parts = parts
        self._random = Random(seed)
        self._pause_s = pause_s
        self._kinds = kinds
        self._victims = victims
        self._lasting: set[asyncio.Task[None]] = set()
        #: Places that something is being done to.
        self._busy: set[str] = set()
        self.counts: Counter[str] = Counter()

    async def run(self) -> None:
        """Do one thing after another."""
        kinds: dict[str, tuple[int, Fault]] = {
            "kill": (4, self._kill),
            "crash": (5, self._crash_at_a_point),
            "pause": (4, self._pause_until_replaced),
            "visit": (2, self._come_and_go),
            "stop": (2, self._stop_politely),
            "sessions": (3, self._end_sessions),
            "postgres": (2, self._restart_postgres),
        }
        if self._parts.brokers is not None:
            kinds["broker"] = (3, self._restart_broker)
        chosen = [kinds[name] for name in kinds if self._kinds is None or name in self._kinds]
        weights = [weight for weight, _ in chosen]
        # Each kind once, then by chance: a short run sees everything.
        first = [fault for _, fault in chosen]
        self._random.shuffle(first)
        while chosen:
            await asyncio.sleep(self._random.uniform(0.5, 1.5) * self._pause_s)
            fault = first.pop() if first else self._random.choices(chosen, weights)[0][1]
            await fault()
        await asyncio.Event().wait()

    async def heal(self) -> None:
        """Wait for what lasts; afterwards everything runs."""
        while self._lasting:
            await asyncio.gather(*self._lasting)

    @property
    def total(self) -> int:
        """How many faults there were."""
        return sum(self.counts.values())

    def _last(self, work: Awaitable[None], *places: str) -> None:
        self._busy.update(places)

        async def done() -> None:
            try:
                await work
            finally:
                self._busy.difference_update(places)

        task = asyncio.create_task(done())
        self._lasting.add(task)
        task.add_done_callback(self._lasting.discard)

    def _victim(self) -> Worker | None:
        free = [
            worker
            for worker in self._parts.workers.values()
            if worker.running and not worker.stopped and worker.name not in self._busy and worker.kind in self._victims
        ]
        return self._random.choice(free) if free else None

    @property
    def left_out(self) -> Sequence[str]:
        """Which kinds of faults the parts cannot suffer."""
        asked_for = self._kinds is None or "broker" in self._kinds
        one = "broker (killed, stopped and started again: only one of three of Apache Kafka can be)"
        return [one] if asked_for and self._parts.brokers is None else []

    # -- workers

    async def _kill(self) -> None:
        victim = self._victim()
        if victim is not None:
            self.counts["kills"] += 1
            await victim.kill()

    async def _crash_at_a_point(self) -> None:
        """Let a worker run into a named point; the supervisor starts it again afterwards."""
        victim = self._victim()
        if victim is None:
            return
        point = self._random.choice(POINTS[victim.kind])
        passes = self._random.randint(1, SELDOM_PASSED.get(point, 12))

        async def crash() -> None:
            starts = victim.starts
            victim.stopped = True
            await victim.kill()
            await victim.start(crash_at=f"{point}:{passes}")
            with suppress(TimeoutError):
                async with asyncio.timeout(20):
                    while victim.starts == starts + 1:
                        await asyncio.sleep(0.1)
            if victim.starts > starts + 1:
                self.counts[f"crashes at {victim.kind}.{point}"] += 1

        self._last(crash(), victim.name)

    async def _pause_until_replaced(self) -> None:
        """Stop a worker for longer than its session lasts, then let it go on: a zombie."""
        victim = self._victim()
        if victim is None or any(name.startswith("pause") for name in self._busy):
            return
        pause_s = SESSION_TIMEOUT_S + self._random.uniform(1.5, 3.5)

        async def pause() -> None:
            victim.send(signal.SIGSTOP)
            await asyncio.sleep(pause_s)
            victim.send(signal.SIGCONT)
            self.counts["zombies"] += 1
            await asyncio.sleep(2)

        self._last(pause(), victim.name, f"pause {victim.kind}")

    async def _come_and_go(self) -> None:
        """Start one more worker for a while."""
        kind = self._random.choice(KINDS)
        name = f"{kind}-extra"
        if name in self._busy:
            return
        worker = self._parts.workers.get(name) or self._parts.place(kind, name)
        stays_s = self._random.uniform(4, 8)

        async def visit() -> None:
            await worker.start()
            await asyncio.sleep(stays_s)
            await self._parts.stop(worker)

        self.counts["extra workers"] += 1
        self._last(visit(), name)

    async def _stop_politely(self) -> None:
        victim = self._victim()
        if victim is None:
            return
        self.counts["polite restarts"] += 1

        async def restart() -> None:
            await self._parts.stop(victim)
            await victim.start()

        self._last(restart(), victim.name)

    # -- what they depend on

    async def _end_sessions(self) -> None:
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            session = await self._parts.session()
            try:
                ended = await session.fetchval(QUERIES["end_sessions"])
            finally:
                await session.close(timeout=5)
            self.counts["times sessions were ended"] += 1 if ended else 0

    async def _restart_postgres(self) -> None:
        if "postgres" in self._busy:
            return
        immediate = self._random.random() < 0.7
        self.counts["PostgreSQL restarts" + (", immediate" if immediate else "")] += 1
        self._last(self._parts.postgres.restart(immediate=immediate), "postgres")

    async def _restart_broker(self) -> None:
        if self._parts.brokers is None or "broker" in self._busy:
            return
        broker, kill = self._random.randint(1, 3), self._random.random() < 0.6
        self.counts["brokers " + ("killed" if kill else "stopped")] += 1
        self._last(self._parts.brokers.restart(broker, self._random.uniform(2, 6), kill=kill), "broker")
