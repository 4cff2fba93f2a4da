"""Worker processes: settings reach them, output is in files, they stop together."""

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from workers.embedded.child import Child
from workers.embedded.processes import WorkerProcess, WorkerProcesses

ENVIRONMENT = {"TALLY_TOPIC_PREFIX": "not a valid prefix!"}


async def test_a_process_that_ends_by_itself_is_named_and_its_output_kept(tmp_path: Path):
    async with WorkerProcesses({"wrong": ["worker", "no-such-worker"]}, ENVIRONMENT, tmp_path) as workers:
        ended = await asyncio.wait_for(workers.first_to_end(), 30)

        assert ended.name == "wrong"
        assert await ended.wait() != 0
    assert ended.log == tmp_path / "wrong.log"
    assert ended.log.read_text()


async def test_a_killed_process_can_be_started_again(tmp_path: Path):
    process = WorkerProcess("one", ["--help"], {}, tmp_path / "one.log")
    await process.start()
    process.send(signal.SIGSTOP)
    first = process.pid

    await process.kill()
    assert not process.running
    await process.start()

    assert process.pid != first
    await process.stop()


async def test_a_signal_to_a_process_that_has_just_ended_does_not_take_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    signalled = threading.Event()
    waitpid = os.waitpid

    def wait_late(pid: int, options: int) -> tuple[int, int]:
        signalled.wait(30)
        return waitpid(pid, options)

    monkeypatch.setattr(os, "waitpid", wait_late)  # as asyncio calls it
    command = [sys.executable, "-c", "raise SystemExit(7)"]
    child = await Child.start(command, log=tmp_path / "log", death_signal=signal.SIGKILL, environment={})
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - asyncio must not learn of it yet

    child.send(signal.SIGTERM)
    signalled.set()

    assert await child.wait() == 7
