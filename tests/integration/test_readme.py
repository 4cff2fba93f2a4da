"""The first program of the README runs as it stands, and prints what the README says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest_asyncio

from topics.admin import TopicAdmin
from topics.connection import KafkaConnection
from workers.embedded.processes import WorkerProcess

ROOT = Path(__file__).resolve().parents[2]


@pytest_asyncio.fixture
async def memory_worker(kafka_bootstrap_servers: str, database: str, tmp_path: Path):
    # The program of the README uses the default prefix, as a reader does.
    async with TopicAdmin(KafkaConnection(bootstrap_servers=kafka_bootstrap_servers)) as admin:
        await admin.create(partitions=2, replication=1)
    environment = {"TALLY_KAFKA_BOOTSTRAP_SERVERS": kafka_bootstrap_servers, "TALLY_POSTGRES_DSN": database}
    worker = WorkerProcess("memory", ["worker", "memory"], environment, tmp_path / "memory.log")
    await worker.start()
    yield worker
    await worker.stop()


def test_the_first_program_runs_as_it_stands(
    kafka_bootstrap_servers: str, memory_worker: WorkerProcess, tmp_path: Path
) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```", readme, re.DOTALL)
    assert found is not None
    program = tmp_path / "first.py"
    program.write_text(found.group(1))

    ran = subprocess.run(
        [sys.executable, str(program)],
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "TALLY_KAFKA_BOOTSTRAP_SERVERS": kafka_bootstrap_servers},
        capture_output=True,
        text=True,
        timeout=90,
    )

    assert ran.returncode == 0, ran.stderr
    written, conflicted, found_value = ran.stdout.splitlines()
    assert written.startswith("MemoryWritten(")
    assert "version=1" in written
    assert conflicted.startswith("MemoryConflicted(")
    assert "current_version=1" in conflicted
    assert found_value.startswith("MemoryFound(")
    assert "value='checked'" in found_value
