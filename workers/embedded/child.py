"""One process of ours that never outlives us: started behind `guard.py`, its output in a file."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_GUARD = Path(__file__).with_name("guard.py")


@dataclass(frozen=True)
class Account:
    """A system account that a child changes to; only root can."""

    name: str
    uid: int
    gid: int


class Child:
    """A running process and the file that holds its output."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self.log = log

    @classmethod
    async def start(
        cls,
        command: Sequence[str | Path],
        *,
        log: Path,
        death_signal: signal.Signals,
        environment: Mapping[str, str],
        account: Account | None = None,
        directory: Path | None = None,
    ) -> Self:
        """Start the command; `death_signal` is what it gets when this process dies without stopping it.

        Call it from a thread that lives as long as the child should (the main thread, as a rule). The child leads a
        session of its own, so that Ctrl-C in a terminal reaches only us and we stop our children in our order.
        """
        guarded: list[str | Path] = [sys.executable, "-I", "-S", _GUARD, str(os.getpid()), str(int(death_signal))]
        guarded += [f"{account.uid}:{account.gid}" if account else "-", "--", *command]
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *guarded,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                env=dict(environment),
                cwd=directory,
                start_new_session=True,
            )
        return cls(process, log)

    @property
    def pid(self) -> int:
        """The process id; after the end it may belong to someone else."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code (negative: the signal that ended it), or None while it runs."""
        return self._process.returncode

    async def wait(self) -> int:
        """Wait for the end and return the exit code."""
        return await self._process.wait()

    def send(self, what: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self._process.returncode is None:
            # The process's own `send_signal` looks first whether it has ended, and so takes the exit code (until Python
            # 3.12.8) before asyncio does, which then reports an unknown child and code 255.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, what)

    async def stop(self, *steps: tuple[signal.Signals, float]) -> int:
        """Send each step's signal and wait its seconds for the end, then kill. Return the exit code.

        Cancellation during a step kills at once and is passed on.
        """
        try:
            for what, patience_s in steps:
                self.send(what)
                try:
                    return await asyncio.wait_for(asyncio.shield(self._process.wait()), patience_s)
                except TimeoutError:
                    continue
        finally:
            self.send(signal.SIGKILL)
        return await self._process.wait()
