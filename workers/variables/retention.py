"""Finished executions -> gone, with their history, in small steps beside the batches."""

from typing import Final, cast

from workers.runtime.postgres import Database
from workers.runtime.queries import load_queries

_QUERIES = load_queries(__file__, "retention.sql")
#: Executions in a step: their revisions are deleted in one short transaction, which no writer waits for.
_STEP: Final = 20


async def delete_finished(database: Database, older_than_days: int) -> int:
    """Delete the executions that ended so long ago; return how many. Raises `DependencyDown`."""
    deleted = 0
    while True:
        async with database.transaction() as connection:
            step = cast("int", await connection.fetchval(_QUERIES["delete_executions"], older_than_days, _STEP))
        deleted += step
        if step < _STEP:
            return deleted
