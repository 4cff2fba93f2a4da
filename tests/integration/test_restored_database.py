"""A database that was restored from a backup is brought up to date from the topics: Kafka is ahead, nothing is lost."""

import asyncio
from urllib.parse import urlsplit

import asyncpg
from pydantic import SecretStr

from schemas.envelope import Event
from schemas.identity import key_of
from tests.support import stack
from tests.support.edge import Edge, assert_table_is_right_or_behind, completed, started
from tests.support.memory import Memory, memory_on, until


def name_of(dsn: str) -> str:
    return urlsplit(dsn).path.removeprefix("/")


def increment(number: int) -> Event:
    item = {"scope": "shared", "subject": {"kind": "case", "id": "c"}, "key": "count", "type": "Integer"}
    return Event(
        id=f"c-{number}", source="/test", type="memory.update", data={**item, "operation": "increment", "by": 1}
    )


async def test_variable_worker_applies_what_a_backup_lacks(variables: Edge, database: str, postgres_dsn: str) -> None:
    before = [event for run in range(8) for event in (started(f"run-{run}"), completed(f"run-{run}", "one", n=1))]
    after = [*(completed(f"run-{run}", "two", n=2) for run in range(8)), started("new")]
    worker = await variables.start_worker()
    await variables.publish(before)
    await variables.drained()
    assert await worker.stop() == 0

    async with stack.database(postgres_dsn, name_of(database)) as backup:
        worker = await variables.start_worker()
        await variables.publish(after)
        await variables.drained()
        assert await worker.stop() == 0

        variables.settings = variables.settings.model_copy(update={"postgres_dsn": SecretStr(backup)})
        last = await variables.start_worker()
        await variables.publish([started("last")])
        await variables.drained()

        # What was lost was decided anew: its copies of before may differ in their times.
        async with variables.database() as connection:
            applied = [row["event_key"] for row in await connection.fetch("SELECT event_key FROM revisions")]
        assert sorted(applied) == sorted(key_of(event) for event in [*before, *after, started("last")])
        assert await assert_table_is_right_or_behind(variables) == 10
        assert "positions set back" in last.lines()
        await last.kill()


async def test_memory_worker_waits_for_the_others_to_stop_and_applies_what_a_backup_lacks(
    kafka_bootstrap_servers: str, database: str, topic_prefix: str, postgres_dsn: str
) -> None:
    async with memory_on(kafka_bootstrap_servers, database, topic_prefix) as memory:
        worker = await memory.start_worker()
        await memory.ask(*(increment(number) for number in range(10)))
        await until_acknowledged(memory, 10)
        worker.terminate()
        assert await worker.wait() == 0

        async with stack.database(postgres_dsn, name_of(database)) as backup:
            old = await memory.start_worker()
            await memory.ask(*(increment(number) for number in range(10, 30)))
            await until_acknowledged(memory, 30)
            restored = await memory.start_worker(postgres_dsn=backup)
            await asyncio.sleep(2)
            # Nothing goes on from Kafka's positions meanwhile.
            assert await count_in(backup) == 10
            # In good order: the embedded broker keeps a killed member until someone else joins.
            old.terminate()
            assert await old.wait() == 0

            await memory.ask(increment(30))

            assert await count_in(backup) == 31
            await memory.kill(restored)


async def until_acknowledged(memory: Memory, records: int) -> None:
    async def acknowledged() -> bool | None:
        return True if sum((await memory.committed()).values()) == records else None

    await until(acknowledged)


async def count_in(dsn: str) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        return int(await connection.fetchval("SELECT convert_from(value, 'UTF8') FROM memory_items"))
    finally:
        await connection.close()
