"""The database's errors and the migrations, on a real server."""

import asyncio

import asyncpg
import pytest
from pydantic import SecretStr

from schemas.errors import DependencyDown, Fenced, UsageError
from tests.support import stack
from workers.runtime import migrations
from workers.runtime.migrations import Migration, migrate, migration_files, missing_migrations
from workers.runtime.postgres import Database

ALL = [migration.name for migration in migration_files()]


def open_database(dsn: str) -> Database:
    return Database(SecretStr(dsn), pool_size=2, application_name="test")


async def test_migrations_are_applied_once_whoever_comes_together(postgres_dsn: str) -> None:
    async with stack.database(postgres_dsn) as dsn:
        applied = await asyncio.gather(*(migrate(SecretStr(dsn)) for _ in range(3)))

        assert sorted(applied) == [[], [], ALL]


async def test_missing_migrations_are_named(postgres_dsn: str) -> None:
    async with stack.database(postgres_dsn) as dsn, open_database(dsn) as database, database.session() as connection:
        assert await missing_migrations(connection) == ALL
        await migrate(SecretStr(dsn))
        assert await missing_migrations(connection) == []


async def test_a_migration_that_was_edited_afterwards_is_refused(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = migration_files()[0]
    monkeypatch.setattr(migrations, "migration_files", lambda: [Migration(first.name, "SELECT 1", "another checksum")])

    with pytest.raises(UsageError, match=first.name):
        await migrate(SecretStr(database))


async def test_a_failed_migration_leaves_nothing_behind(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Migration("9999_broken", "CREATE TABLE half_done (); SELECT no_such_column;", "x")
    monkeypatch.setattr(migrations, "migration_files", lambda: [*migration_files(), broken])

    with pytest.raises(asyncpg.PostgresError):
        await migrate(SecretStr(database))

    async with open_database(database) as opened, opened.session() as connection:
        assert await connection.fetchval("SELECT to_regclass('half_done')") is None


async def test_a_session_plans_each_call_and_commits_to_disk(database: str) -> None:
    async with open_database(database) as opened, opened.transaction() as connection:
        assert await connection.fetchval("SHOW plan_cache_mode") == "force_custom_plan"
        assert await connection.fetchval("SHOW synchronous_commit") == "on"
        assert await connection.fetchval("SHOW application_name") == "test"


async def test_what_an_account_has_for_people_does_not_bind_workers(database: str) -> None:
    foreign = {
        "synchronous_commit": "off",
        "default_transaction_isolation": "repeatable read",
        "statement_timeout": "1ms",
        "lock_timeout": "1ms",
        "idle_session_timeout": "1ms",
        "idle_in_transaction_session_timeout": "0",
    }
    await set_for_all(database, foreign)

    async with open_database(database) as opened, opened.transaction() as connection:
        found = {name: await connection.fetchval(f"SHOW {name}") for name in foreign}

    assert found == {
        "synchronous_commit": "on",
        "default_transaction_isolation": "read committed",
        "statement_timeout": "0",
        "lock_timeout": "0",
        "idle_session_timeout": "0",
        # Else a worker whose machine vanished would keep its locks for hours.
        "idle_in_transaction_session_timeout": "30s",
    }


async def set_for_all(dsn: str, settings: dict[str, str]) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        name = await connection.fetchval("SELECT current_database()")
        for setting, value in settings.items():
            await connection.execute(f"ALTER DATABASE {name} SET {setting} = '{value}'")
    finally:
        await connection.close()


async def test_a_session_that_was_ended_for_its_idleness_is_an_outage_and_the_next_works(database: str) -> None:
    impatient = {"idle_in_transaction_session_timeout": "50ms"}
    async with Database(SecretStr(database), pool_size=1, application_name="test", session=impatient) as opened:
        with pytest.raises(DependencyDown):  # noqa: PT012 - the block is what is tested
            async with opened.transaction() as connection:
                await asyncio.sleep(0.5)
                await connection.fetchval("SELECT 1")
        async with opened.transaction() as connection:
            assert await connection.fetchval("SELECT 1") == 1


async def test_prepared_statements_that_a_pooler_loses_cost_a_session(database: str) -> None:
    async with Database(SecretStr(database), pool_size=1, application_name="test") as opened:
        with pytest.raises(DependencyDown, match="let its pooler lend whole sessions"):  # noqa: PT012
            async with opened.session() as connection:
                await connection.fetchval("SELECT 1")
                await connection.execute("DEALLOCATE ALL")
                await connection.fetchval("SELECT 1")
        async with opened.session() as connection:
            assert await connection.fetchval("SELECT 1") == 1


async def test_a_database_that_cannot_hold_every_text_is_refused(postgres_dsn: str) -> None:
    connection = await asyncpg.connect(postgres_dsn)
    try:
        await connection.execute("CREATE DATABASE test_latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        with pytest.raises(UsageError, match="encoding is LATIN1"):
            await migrate(SecretStr(stack.with_database(postgres_dsn, "test_latin1")))
    finally:
        await connection.execute("DROP DATABASE IF EXISTS test_latin1")
        await connection.close()


async def test_a_block_that_raises_is_rolled_back(database: str) -> None:
    async with open_database(database) as opened:
        with pytest.raises(KeyError):  # noqa: PT012 - the block is what is tested
            async with opened.transaction() as connection:
                await connection.execute("CREATE TABLE gone ()")
                raise KeyError("changed my mind")
        async with opened.session() as connection:
            assert await connection.fetchval("SELECT to_regclass('gone')") is None


async def test_a_server_that_is_not_there_is_a_dependency_down() -> None:
    with pytest.raises(DependencyDown, match=r"127\.0\.0\.1:1/none") as caught:
        await open_database("postgresql://user:hunter2@127.0.0.1:1/none").open()

    assert "hunter2" not in str(caught.value)


async def test_a_session_that_the_server_ends_is_a_dependency_down_and_the_next_works(database: str) -> None:
    async with open_database(database) as opened:
        with pytest.raises(DependencyDown):  # noqa: PT012 - the block is what is tested
            async with opened.transaction() as connection:
                async with opened.session() as other:
                    await other.execute("SELECT pg_terminate_backend($1)", connection.get_server_pid())
                await asyncio.sleep(0.1)
                await connection.fetchval("SELECT 1")
        async with opened.transaction() as connection:
            assert await connection.fetchval("SELECT 1") == 1


async def test_losing_a_race_means_looking_again(database: str) -> None:
    async with open_database(database) as opened:
        async with opened.session() as connection:
            await connection.execute("CREATE TABLE t (k int CONSTRAINT one_k UNIQUE)")
            await connection.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(Fenced, match="one_k"):
            async with opened.transaction() as connection:
                await connection.execute("INSERT INTO t VALUES (1)")


async def test_two_transactions_that_lock_crosswise_are_a_race(database: str) -> None:
    async with open_database(database) as opened:
        async with opened.session() as connection:
            await connection.execute("CREATE TABLE t (k int); INSERT INTO t VALUES (1), (2)")
        both_hold = asyncio.Barrier(2)

        async def lock(first: int, second: int) -> None:
            async with opened.transaction() as connection:
                await connection.execute("SELECT FROM t WHERE k = $1 FOR UPDATE", first)
                await both_hold.wait()
                await connection.execute("SELECT FROM t WHERE k = $1 FOR UPDATE", second)

        results = await asyncio.gather(lock(1, 2), lock(2, 1), return_exceptions=True)

    assert [type(result) for result in results if result is not None] == [Fenced]
