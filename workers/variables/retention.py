"""Finished executions and old refusals -> gone, in small steps beside the batches."""

from collections.abc import Awaitable, Callable
from typing import Final, cast

from workers.runtime.postgres import Connection, Database
from workers.runtime.queries import load_queries

_QUERIES = load_queries(__file__, "retention.sql")
#: Executions in a step: their revisions are deleted in one short transaction, which no writer waits for.
_EXECUTIONS: Final = 20
_REFUSALS: Final = 500


async def delete_finished(database: Database, older_than_days: int) -> int:
    """Delete the executions that ended so long ago; return how many. Raises `DependencyDown`."""

    async def step(connection: Connection) -> int:
        return cast("int", await connection.fetchval(_QUERIES["delete_executions"], older_than_days, _EXECUTIONS))

    return await _in_steps(database, step, _EXECUTIONS)


async def delete_refusals(database: Database, older_than_days: int) -> int:
    """Delete the refusals of records that no topic holds any more; return how many. Raises `DependencyDown`."""

    async def step(connection: Connection) -> int:
        status = await connection.execute(_QUERIES["delete_rejections"], older_than_days, _REFUSALS)
        return int(status.removeprefix("DELETE "))

    return await _in_steps(database, step, _REFUSALS)


async def _in_steps(database: Database, step: Callable[[Connection], Awaitable[int]], size: int) -> int:
    deleted = 0
    while True:
        async with database.transaction() as connection:
            count = await step(connection)
        deleted += count
        if count < size:
            return deleted
