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
