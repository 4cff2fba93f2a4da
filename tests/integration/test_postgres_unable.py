"""PostgreSQL answers, but cannot commit: the worker waits, says why, and goes on by itself."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import asyncpg
import pytest_asyncio
from pydantic import SecretStr

from schemas.envelope import Event
from tests.support.memory import Memory, command, memory_on, until
from tests.support.ports import free_port, until_readyz
from tests.support.stack import with_database
from workers.cli.doctor import Diagnosis, diagnose
from workers.settings import read_settings

END_SESSIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"
DISK_FULL = """
CREATE FUNCTION disk_full() RETURNS trigger LANGUAGE plpgsql AS
    $$BEGIN RAISE 'could not extend file: No space left on device' USING ERRCODE = '53100'; END$$;
CREATE TRIGGER disk_full BEFORE INSERT ON memory_outcomes FOR EACH ROW EXECUTE FUNCTION disk_full()
"""
#: What is done to the server, what undoes it, what /readyz then says, what `tally doctor` says.
FAULTS = {
    "read only": (
        ["ALTER DATABASE {database} SET default_transaction_read_only = on", END_SESSIONS],
        ["ALTER DATABASE {database} RESET default_transaction_read_only", END_SESSIONS],
        "in a read-only transaction",
        "postgresql is read-only",
    ),
    "no connections": (
        ["ALTER DATABASE {database} ALLOW_CONNECTIONS false", END_SESSIONS],
        ["ALTER DATABASE {database} ALLOW_CONNECTIONS true"],
        "is not currently accepting connections",
        "is not currently accepting connections",
    ),
    "disk full": (
        [DISK_FULL],
        ["DROP TRIGGER disk_full ON memory_outcomes"],
        "No space left on device); make room on its disk",
        "it does not get on (memory-commands, partition 0, offset 40)",
    ),
}


@pytest_asyncio.fixture
async def memory(kafka_bootstrap_servers: str, database: str, topic_prefix: str) -> AsyncIterator[Memory]:
    async with memory_on(kafka_bootstrap_servers, database, topic_prefix) as memory:
        yield memory


def increments(number: int) -> list[Event]:
    return [command("memory.update", type="Integer", operation="increment") for _ in range(number)]


async def execute(memory: Memory, statements: list[str]) -> None:
    """Execute as somebody whose own session is elsewhere, except for what is done to tables."""
    name = urlsplit(memory.dsn).path.removeprefix("/")
    for statement in statements:
        within = "memory_outcomes" in statement
        connection = await asyncpg.connect(memory.dsn if within else with_database(memory.dsn, "postgres"))
        try:
            await connection.execute(statement.replace("{database}", name))
        finally:
            await connection.close()


async def doctor(memory: Memory) -> list[Diagnosis]:
    settings = read_settings(
        kafka_bootstrap_servers=memory.connection.bootstrap_servers,
        postgres_dsn=SecretStr(memory.dsn),
        topic_prefix=memory.connection.prefix,
        topic_partitions=2,
    )
    return await diagnose(settings)


def troubles(found: list[Diagnosis]) -> str:
    return "\n".join(f"{each.name} {each.what}; {each.remedy}" for each in found if each.state == "down")


@asynccontextmanager
async def ready_worker(memory: Memory) -> AsyncIterator[int]:
    """Run a worker that must outlive the block; give its health port."""
    port = free_port()
    process = await memory.start_worker(health_host="127.0.0.1", health_port=port)
    await until_readyz(port, 200)
    yield port
    await until_readyz(port, 200)
    assert process.returncode is None


async def test_a_server_that_cannot_commit_is_waited_for_and_explained(memory: Memory) -> None:
    events: list[Event] = []
    async with ready_worker(memory) as port:
        for cause, undo, why, diagnosis in FAULTS.values():
            await execute(memory, cause)
            fresh = increments(20)
            events += fresh
            await memory.publish(*fresh)
            await until_readyz(port, 503, why)
            assert diagnosis in troubles(await doctor(memory))
            await execute(memory, undo)
            outcomes = await memory.outcomes([event.id for event in events])

    assert [outcomes[event.id].data["version"] for event in events] == list(range(1, len(events) + 1))


async def test_who_holds_up_a_worker_is_named(memory: Memory) -> None:
    events = increments(20)
    async with ready_worker(memory):
        holder = await asyncpg.connect(memory.dsn, server_settings={"application_name": "psql"})
        holder_id = holder.get_server_pid()
        async with holder.transaction():
            await holder.execute("LOCK TABLE memory_items")
            await memory.publish(*events)

            async def named() -> str | None:
                found = troubles(await doctor(memory))
                return found if "held up" in found else None

            found = await until(named, 30)
        await holder.close()
        outcomes = await memory.outcomes([event.id for event in events])

    assert f"postgresql session {holder_id} (psql) has held up tally-memory for" in found
    assert f"SELECT pg_terminate_backend({holder_id})" in found
    assert [outcomes[event.id].data["version"] for event in events] == list(range(1, 21))
