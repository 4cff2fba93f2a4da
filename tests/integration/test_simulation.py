"""A simulated run against real memory: it reads, it never writes."""

from pathlib import Path

import asyncpg

from schemas.envelope import Event
from schemas.exact_json import JsonObject
from schemas.executions import ExecutionFinalized
from schemas.memory import MemoryFound
from tests.support.office import environment_of
from topics.admin import TopicAdmin
from topics.client import Client
from workers.embedded.processes import WorkerProcesses
from workers.settings import read_settings

ITEM: JsonObject = {"scope": "shared", "subject": "workflow-global", "key": "counter", "type": "Integer"}
COMMANDS = {"variables": ("worker", "variables"), "memory": ("worker", "memory")}


def run_of(execution_id: str) -> list[Event]:
    def event(number: int, event_type: str, data: JsonObject) -> Event:
        return Event(id=f"{execution_id}-{number}", source="/engine", type=event_type, subject=execution_id, data=data)

    return [
        event(1, "execution.started", {"workflow": {"name": "flow"}, "simulation": True}),
        event(2, "memory.read", {"node_id": "seen", **ITEM}),
        event(3, "memory.update", {"node_id": "count", "operation": "increment", "by": 1, **ITEM}),
        event(4, "memory.write", {"node_id": "lost", "value": 0, "expected_version": "{{seen.version}}", **ITEM}),
        event(5, "execution.completed", {"output": {"count": "{{count.value}}", "lost": "{{lost.conflict}}"}}),
    ]


async def test_a_simulation_reads_real_memory_and_leaves_it_byte_for_byte(
    kafka_bootstrap_servers: str, database: str, topic_prefix: str, tmp_path: Path
) -> None:
    settings = read_settings(
        kafka_bootstrap_servers=kafka_bootstrap_servers, postgres_dsn=database, topic_prefix=topic_prefix
    )
    async with TopicAdmin(settings.kafka()) as admin:
        await admin.create(partitions=2, replication=1)
    async with (
        WorkerProcesses(COMMANDS, environment_of(settings), tmp_path),
        Client(settings.kafka(), source="/tests", timeout_s=60) as client,
    ):
        await client.write("counter", 41, type="Integer", subject="workflow-global", scope="shared")
        before = await _rows(database)

        results = []
        for execution_id in ("one", "two"):
            for event in run_of(execution_id):
                await client.publish(event)
            results.append(await _finalized(client, execution_id))

        assert await _rows(database) == before
        assert [result.output for result in results] == [{"count": 42, "lost": True}] * 2
        found = await client.read("counter", type="Integer", subject="workflow-global", scope="shared")
        assert isinstance(found, MemoryFound)
        assert (found.value, found.version) == (41, 1)


async def _finalized(client: Client, execution_id: str) -> ExecutionFinalized:
    async for update in client.updates(start="beginning"):
        if update.execution_id == execution_id and isinstance(update.data, ExecutionFinalized):
            return update.data
    raise AssertionError("the updates never end")


async def _rows(dsn: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(dsn, timeout=30)
    try:
        found: list[asyncpg.Record] = await connection.fetch("SELECT * FROM memory_items ORDER BY address")
        return found
    finally:
        await connection.close(timeout=10)
