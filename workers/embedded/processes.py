"""Worker processes: started with their settings in the environment, output in files, stopped together."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from workers.embedded.child import Child

#: A worker finishes its batch and gives its partitions back; the rest is repeated by the next owner.
STOP_PATIENCE_S = 15.0


class WorkerProcess:
    """One `python -m workers ...` process that can be started again after it ended."""

    def __init__(self, name: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Run `python -m workers *arguments`; `environment` is added to ours."""
        self.name = name
        self.log = log
        self._arguments = arguments
        self._environment = environment
        self._child: Child | None = None

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self._child is not None and self._child.exit_code is None

    @property
    def pid(self) -> int:
        """The id of the started process."""
        return self._started().pid

    async def start(self) -> None:
        """Start the process; from the main thread, whose end it does not survive."""
        assert not self.running, f"{self.name} runs already"
        inherited = dict(os.environ)  # noqa: TID251 - handed on, not read: PATH, HOME, proxies and the like
        self._child = await Child.start(
            [sys.executable, "-m", "workers", *self._arguments],
            log=self.log,
            death_signal=signal.SIGKILL,
            environment={**inherited, **self._environment},
        )

    async def wait(self) -> int:
        """Wait for the end; the exit code, negative for a signal."""
        return await self._started().wait()

    async def stop(self) -> int:
        """Let it finish what it has in hand, and kill it if it takes too long. Return the exit code."""
        return await self._started().stop((signal.SIGTERM, STOP_PATIENCE_S))

    async def kill(self) -> None:
        """End it without warning, as a crash would."""
        await self._started().stop()

    def send(self, what: signal.Signals) -> None:
        """Send a signal, such as SIGSTOP to play a hung process."""
        self._started().send(what)

    def _started(self) -> Child:
        assert self._child is not None, f"{self.name} was never started"
        return self._child


class WorkerProcesses:
    """Several workers that start with the block and are stopped with it."""

    def __init__(
        self, commands: Mapping[str, Sequence[str]], environment: Mapping[str, str], log_directory: Path
    ) -> None:
        """Take the arguments of each process by its name; output goes to `log_directory/NAME.log`."""
        self.processes = {
            name: WorkerProcess(name, arguments, environment, log_directory / f"{name}.log")
            for name, arguments in commands.items()
        }

    async def __aenter__(self) -> Self:
        try:
            for process in self.processes.values():
                await process.start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    async def first_to_end(self) -> WorkerProcess:
        """Wait until any of them ends by itself, and name it."""
        waits = {asyncio.create_task(process.wait()): process for process in self.processes.values()}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
        return waits[done.pop()]

    async def _stop(self) -> None:
        async with asyncio.TaskGroup() as group:
            for process in self.processes.values():
                if process.running:
                    group.create_task(process.stop())
