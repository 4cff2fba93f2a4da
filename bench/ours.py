"""Our workers as contenders: from the first record read to the last one acknowledged."""

from collections.abc import Callable, Sequence
from time import perf_counter

from bench import kafka
from bench.kafka import LogEnd
from bench.process import Measured
from topics.publisher import Publisher
from topics.records import Record


class Worker:
    """Worker processes of one kind. A round is done when the topic `done` has one more record for each event."""

    def __init__(
        self,
        name: str,
        processes: Sequence[Measured],
        publisher: Publisher,
        done: LogEnd,
        make_events: Callable[[], Sequence[Record]],
    ) -> None:
        self.name = name
        self.cpu_s: list[float] = []
        self._processes = processes
        self._publisher = publisher
        self._done = done
        self._make_events = make_events
        self._target = 0
        self._started = False

    async def prepare(self) -> None:
        """Write the backlog while the processes stand still."""
        for process in self._processes:
            if self._started:
                process.hold()
        records = self._make_events()
        self._target = await self._done.records() + len(records)
        await kafka.fill(self._publisher, records)

    async def run(self) -> float:
        """Let the processes work the backlog off."""
        if not self._started:
            for process in self._processes:
                await process.process.start()
            self._started = True
        cpu = [process.cpu_s() for process in self._processes]
        started = perf_counter()
        for process in self._processes:
            process.release()
        await self._done.wait_for(self._target)
        seconds = perf_counter() - started
        self.cpu_s.append(sum(process.cpu_s() for process in self._processes) - sum(cpu))
        return seconds

    async def stop(self) -> None:
        """End the processes."""
        for process in self._processes:
            if process.process.running:
                process.release()
                await process.process.stop()
