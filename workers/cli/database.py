"""A session of the database for commands that only look."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from workers.runtime.postgres import Connection, Database
from workers.settings import Settings


@asynccontextmanager
async def reading(settings: Settings) -> AsyncIterator[Connection]:
    """Give a session whose statements see one state. Raises `DependencyDown`."""
    database = Database(settings.postgres_dsn, pool_size=1, application_name="tally-cli")
    async with database, database.transaction(readonly=True) as connection:
        yield connection
