"""Our workers as contenders: from the first record read to the last one acknowledged."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from time import perf_counter

from bench import kafka
from bench.kafka import LogEnd
from bench.process import Measured
from topics.publisher import Publisher
from topics.records import Record

#: Of a throttled process: short beside a batch's time.
_PERIOD_S = 0.02


class Worker:
    """Worker processes of one kind. A round is done when the topic `done` has one more record for each event.

    With a `share` below 1 each process runs for so much of the time, and is held for the rest.
    """

    def __init__(
        self,
        name: str,
        processes: Sequence[Measured],
        publisher: Publisher,
        done: LogEnd,
        make_events: Callable[[], Sequence[Record]],
        *,
        share: float = 1.0,
    ) -> None:
        self.name = name
        self.cpu_s: list[float] = []
        self._processes = processes
        self._publisher = publisher
        self._done = done
        self._make_events = make_events
        self._share = share
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
        async with self._throttled():
            await self._wait()
        seconds = perf_counter() - started
        self.cpu_s.append(sum(process.cpu_s() for process in self._processes) - sum(cpu))
        return seconds

    @contextlib.asynccontextmanager
    async def _throttled(self) -> AsyncIterator[None]:
        """Hold the processes for the rest of their time, each in its turn."""
        shift_s = _PERIOD_S / len(self._processes)
        throttles = [
            asyncio.ensure_future(self._throttle(process, number * shift_s))
            for number, process in enumerate(self._processes)
            if self._share < 1
        ]
        try:
            yield
        finally:
            for throttle in throttles:
                throttle.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await throttle
            for process in self._processes:
                process.release()

    async def _throttle(self, process: Measured, shift_s: float) -> None:
        await asyncio.sleep(shift_s)
        while True:
            process.release()
            await asyncio.sleep(_PERIOD_S * self._share)
            process.hold()
            await asyncio.sleep(_PERIOD_S * (1 - self._share))

    async def _wait(self) -> None:
        """Wait for the last event; a process that ends before is a failure of its own."""
        done = asyncio.ensure_future(self._done.wait_for(self._target))
        ends = {asyncio.ensure_future(process.process.wait()): process for process in self._processes}
        try:
            finished, _ = await asyncio.wait([done, *ends], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
        if done not in finished:
            done.cancel()
            log = next(ends[end] for end in ends if end in finished).process.log
            raise RuntimeError(f"a worker ended in mid-round; the end of its log:\n{log.read_text()[-2000:]}")
        done.result()

    async def stop(self) -> None:
        """End the processes."""
        for process in self._processes:
            if process.process.running:
                process.release()
                await process.process.stop()
