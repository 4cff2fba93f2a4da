"""Worker processes: settings reach them, output is in files, they stop together."""

import asyncio
import signal
from pathlib import Path

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
