"""Finished executions are deleted after their retention; running and younger ones stay."""

import asyncpg
from pydantic import SecretStr

from workers.runtime.postgres import Database
from workers.variables.retention import delete_finished, delete_refusals


async def test_only_what_ended_long_ago_is_deleted_with_its_history(database: str) -> None:
    async with Database(SecretStr(database), pool_size=2, application_name="test") as opened:
        async with opened.session() as connection:
            await _insert(connection, "old", 45, ended_days_ago=100)
            await _insert(connection, "young", 3, ended_days_ago=10)
            await _insert(connection, "running", 1, ended_days_ago=None)

        deleted = await delete_finished(opened, 90)

        async with opened.session() as connection:
            left = await connection.fetch("SELECT execution_id FROM executions ORDER BY execution_id")
            history = await connection.fetch("SELECT DISTINCT execution_id FROM revisions ORDER BY execution_id")
    assert deleted == 45
    assert [row["execution_id"] for row in left] == ["running-0", "young-0", "young-1", "young-2"]
    assert [row["execution_id"] for row in history] == [row["execution_id"] for row in left]


async def test_refusals_are_forgotten_in_steps_once_their_records_cannot_come_again(database: str) -> None:
    async with Database(SecretStr(database), pool_size=2, application_name="test") as opened:
        async with opened.session() as connection:
            await connection.execute(
                """
                INSERT INTO rejections (topic, partition, record_offset, timestamp_ms, code, message, rejected_at)
                SELECT 'execution-events', 0, n, n, 'malformed', 'm', now() - make_interval(days => n / 100)
                  FROM generate_series(0, 1999) AS n
                """
            )

        deleted = await delete_refusals(opened, 8)

        async with opened.session() as connection:
            left = await connection.fetch("SELECT record_offset FROM rejections ORDER BY record_offset")
    assert deleted == 1200
    assert [row["record_offset"] for row in left] == list(range(800))


async def _insert(connection: asyncpg.Connection, name: str, count: int, *, ended_days_ago: int | None) -> None:
    await connection.execute(
        """
        INSERT INTO executions (tenant, execution_id, revision, status, head, seen_at, ended_at, updated_at)
        SELECT 'default', $1 || '-' || n, 1, CASE WHEN $3::int IS NULL THEN 'running' ELSE 'completed' END, '{}',
               now(), now() - make_interval(days => $3::int), now()
          FROM generate_series(0, $2 - 1) AS n
        """,
        name,
        count,
        ended_days_ago,
    )
    await connection.execute(
        """
        INSERT INTO revisions (tenant, execution_id, revision, applied_at, body, changes, outgoing)
        SELECT 'default', $1 || '-' || n, 1, now(), '{}', '[]', '[]' FROM generate_series(0, $2 - 1) AS n
        """,
        name,
        count,
    )
