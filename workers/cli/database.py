"""A session of the database for commands that only look."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from schemas.errors import TallyError
from workers.runtime.postgres import Connection, Database
from workers.settings import Settings


class SchemaMissing(TallyError):  # noqa: N818 - named after what is missing
    """The database answers but was never migrated, or not by this version."""

    code = "schema_missing"


@asynccontextmanager
async def reading(settings: Settings) -> AsyncIterator[Connection]:
    """Give a session whose statements see one state. Raises `DependencyDown`, `SchemaMissing`."""
    database = Database(settings.postgres_dsn, pool_size=1, application_name="tally-cli")
    try:
        async with database, database.transaction(readonly=True) as connection:
            yield connection
    except asyncpg.UndefinedTableError as error:
        raise SchemaMissing("the database has no schema; run `tally migrate`") from error
    except asyncpg.UndefinedColumnError as error:
        raise SchemaMissing("the database has the schema of an earlier version; run `tally migrate`") from error
