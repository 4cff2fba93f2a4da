"""deploy/migrations/NNNN_*.sql -> the database, in order, each once."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncpg
from pydantic import SecretStr

from schemas.errors import UsageError
from workers.runtime.postgres import Connection
from workers.runtime.postgres_errors import AWAY, down
from workers.runtime.queries import load_queries

_QUERIES = load_queries(__file__, "migrations.sql")
_FILE_NAME = re.compile(r"\d{4}_[a-z0-9_]+\.sql")
_CONNECT_TIMEOUT_S = 10.0
#: Names and messages are of any script; SQL_ASCII keeps bytes as they come.
_ENCODINGS = ("UTF8", "SQL_ASCII")


@dataclass(frozen=True, slots=True)
class Migration:
    """One file; `checksum` tells whether an applied one was edited afterwards."""

    name: str
    sql: str
    checksum: str


def migration_files() -> Sequence[Migration]:
    """Read the migrations, in order: from the installed package, else from the checkout."""
    packaged = Path(__file__).parents[1] / "migrations"
    folder = packaged if packaged.is_dir() else Path(__file__).parents[2] / "deploy" / "migrations"
    paths = sorted(path for path in folder.glob("*.sql") if _FILE_NAME.fullmatch(path.name))
    if not paths:
        raise UsageError(f"no migrations in {folder}; install the package again")
    return [_read(path) for path in paths]


def _read(path: Path) -> Migration:
    sql = path.read_text(encoding="utf-8")
    return Migration(path.stem, sql, hashlib.sha256(sql.encode()).hexdigest())


async def migrate(dsn: SecretStr) -> list[str]:
    """Apply what is missing, under a lock so that two callers do not meet; return the names that were applied.

    Raises `DependencyDown`, and `UsageError` when an applied migration differs from its file, or when the database
    cannot hold every text: a worker could not go past the first that it refuses.
    """
    try:
        connection = await asyncpg.connect(dsn.get_secret_value(), timeout=_CONNECT_TIMEOUT_S)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise down(dsn, error) from error
    try:
        encoding = await connection.fetchval(_QUERIES["database_encoding"])
        if encoding not in _ENCODINGS:
            raise UsageError(
                f"the database's encoding is {encoding}, which cannot hold every text; "
                "create it with ENCODING 'UTF8' TEMPLATE template0"
            )
        await connection.execute(_QUERIES["lock_migrations"])
        await connection.execute(_QUERIES["create_schema_migrations"])
        applied = {row["name"]: row["checksum"] for row in await connection.fetch(_QUERIES["applied_migrations"])}
        return [m.name for m in migration_files() if await _apply(connection, m, applied.get(m.name))]
    except AWAY as error:
        raise down(dsn, error) from error
    finally:
        await connection.close()


async def _apply(
    connection: "asyncpg.Connection[asyncpg.Record]", migration: Migration, applied_checksum: str | None
) -> bool:
    if applied_checksum == migration.checksum:
        return False
    if applied_checksum is not None:
        raise UsageError(
            f"the migration {migration.name} was applied in another form; "
            "restore its file and write the change as a new migration"
        )
    async with connection.transaction():
        await connection.execute(migration.sql)
        await connection.execute(_QUERIES["record_migration"], migration.name, migration.checksum)
    return True


async def missing_migrations(connection: Connection) -> list[str]:
    """Return the names that `migrate` would apply."""
    if not await connection.fetchval(_QUERIES["has_schema_migrations"]):
        return [migration.name for migration in migration_files()]
    applied = {row["name"] for row in await connection.fetch(_QUERIES["applied_migrations"])}
    return [migration.name for migration in migration_files() if migration.name not in applied]
