"""PostgreSQL's clock goes forward and back: versions, outcomes and order rest on none of it."""

from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import asyncpg
import pytest_asyncio

from tests.support.memory import Memory, command, memory_on, until
from topics.catalog import Topic

#: The workers' statements find this clock before the server's own.
CLOCK = """
CREATE SCHEMA fake;
CREATE TABLE fake.shift (by interval NOT NULL);
INSERT INTO fake.shift VALUES ('0');
CREATE FUNCTION fake.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
    'SELECT pg_catalog.clock_timestamp() + by FROM fake.shift';
CREATE FUNCTION fake.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT pg_catalog.now() + by FROM fake.shift';
"""
HOUR = 3600


@pytest_asyncio.fixture
async def memory(kafka_bootstrap_servers: str, database: str, topic_prefix: str) -> AsyncIterator[Memory]:
    connection = await asyncpg.connect(database)
    await connection.execute(CLOCK)
    name = urlsplit(database).path.removeprefix("/")
    await connection.execute(f"ALTER DATABASE {name} SET search_path = fake, pg_catalog, public")
    await connection.close()
    async with memory_on(kafka_bootstrap_servers, database, topic_prefix) as memory:
        yield memory


async def shift(memory: Memory, hours: int) -> None:
    await memory.fetch("UPDATE fake.shift SET by = make_interval(hours => $1)", hours)


async def test_versions_and_outcomes_survive_a_clock_that_jumps(memory: Memory) -> None:
    write = command(type="Integer", value=1, expected_version=0, ttl=1800, ttl_unit="seconds")
    await memory.start_worker(purge_interval_s=0.2)
    first = await memory.ask(write)

    await shift(memory, 1)
    gone = await memory.ask(command("memory.read", type="Integer"))
    await until(lambda: expired(memory))
    second = await memory.ask(command(type="Integer", value=2, expected_version=0, ttl=2 * HOUR, ttl_unit="seconds"))
    await shift(memory, -1)
    found = await memory.ask(command("memory.read", type="Integer"))
    third = await memory.ask(command(type="Integer", value=3, expected_version=2), write)
    await shift(memory, 0)
    last = await memory.ask(command("memory.update", type="Integer", operation="increment", by=1))

    assert [each.type for each in (*gone, *found)] == ["memory.missing", "memory.found"]
    assert [each.data["version"] for each in (*first, *second, *third, *last)] == [1, 2, 3, 1, 4]
    rows = await memory.fetch("SELECT version FROM memory_versions ORDER BY version")
    assert [row["version"] for row in rows] == [2, 3, 4]
    states = [event.data for event in await memory.events(Topic.MEMORY_CHANGES)]
    assert [state["change"] for state in states] == ["written", "expired", "written", "written", "written"]
    assert [state["sequence"] for state in states] == [1, 2, 3, 4, 5]


async def expired(memory: Memory) -> bool | None:
    states = await memory.events(Topic.MEMORY_CHANGES)
    return True if any(event.data["change"] == "expired" for event in states) else None
