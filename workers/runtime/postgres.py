"""PostgreSQL: the pool, transactions, and what its errors mean to a worker."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Self, TypeAlias

import asyncpg
from asyncpg.pool import PoolConnectionProxy
from pydantic import SecretStr

from schemas.errors import DependencyDown, Fenced
from workers.settings import Settings

if TYPE_CHECKING:
    Connection: TypeAlias = PoolConnectionProxy[asyncpg.Record]
    Pool: TypeAlias = asyncpg.Pool[asyncpg.Record]
else:
    Connection = PoolConnectionProxy
    Pool = asyncpg.Pool

#: Longer than any batch takes (tens of milliseconds) and than a lock wait behind another batch.
_STATEMENT_TIMEOUT_S = 60.0
_CONNECT_TIMEOUT_S = 10.0
_SESSION = {
    # A cached generic plan that was made while a table was empty halved the speed.
    "plan_cache_mode": "force_custom_plan",
    # What was published is never undone by a crash of the database.
    "synchronous_commit": "on",
}

#: For workers, whose every statement finds its rows by key. The planner reads small tables whole instead, for each
#: batch, and goes on while they grow: at 20,000 rows that is three times the work, at a million it stops the worker.
BY_KEY: Mapping[str, str] = {"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off"}

#: The server or the way to it is away, or it cannot write now: the same statement works later.
_AWAY = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.PostgresSystemError,
    # What a session that broke in mid-statement answers when it is given back ("another operation is in progress").
    asyncpg.InternalClientError,
)
#: Another transaction was faster: roll back, look up again, decide again.
_RACES = (
    asyncpg.TransactionRollbackError,
    asyncpg.UniqueViolationError,
    asyncpg.LockNotAvailableError,
    asyncpg.InvalidCachedStatementError,
)


class LoginRefused(DependencyDown):
    """The server answers, but not to this user: another DSN is needed."""

    def __init__(self, where: str, cause: str) -> None:
        super().__init__("PostgreSQL", where, cause)
        refused = f"PostgreSQL at {where} refuses the user or password ({cause})"
        self.args = (f"{refused}; set TALLY_POSTGRES_DSN as `tally up` printed it, or to your own server's account",)


class Database:
    """A pool of sessions. Every error that leaves it says whether trying again helps."""

    def __init__(
        self,
        dsn: SecretStr,
        *,
        pool_size: int,
        application_name: str,
        session: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Describe a pool; `session` are settings of PostgreSQL for its sessions, besides ours."""
        self._dsn = dsn
        self._session = {**_SESSION, **session}
        self._pool_size = pool_size
        self._application_name = application_name
        self._pool: Pool | None = None

    @classmethod
    def from_settings(
        cls, settings: Settings, application_name: str, session: Mapping[str, str] = MappingProxyType({})
    ) -> Self:
        """Describe the database of `settings`; `open` connects."""
        return cls(
            settings.postgres_dsn,
            pool_size=settings.postgres_pool_size,
            application_name=application_name,
            session=session,
        )

    async def open(self) -> None:
        """Connect. Raises `DependencyDown`."""
        try:
            self._pool = await asyncpg.create_pool(
                self._dsn.get_secret_value(),
                min_size=1,
                max_size=self._pool_size,
                timeout=_CONNECT_TIMEOUT_S,
                command_timeout=_STATEMENT_TIMEOUT_S,
                reset=_as_it_is,
                server_settings={**self._session, "application_name": self._application_name},
            )
        except (*_AWAY, asyncpg.InterfaceError) as error:
            raise self._down(error) from error

    async def close(self) -> None:
        """Give the sessions back; what still runs is rolled back by the server."""
        if self._pool is not None:
            self._pool.terminate()
            self._pool = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @asynccontextmanager
    async def transaction(self, *, readonly: bool = False) -> AsyncIterator[Connection]:
        """Run a READ COMMITTED transaction: committed when the block ends, rolled back when it raises.

        Raises `DependencyDown`: the server is away; after a lost COMMIT too, which may have committed, so the
        caller looks at its fence row first. Raises `Fenced`: another transaction was faster (serialization,
        deadlock, a unique constraint); the caller looks up again.
        """
        async with self.session() as connection, connection.transaction(readonly=readonly):
            yield connection

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Connection]:
        """Lend a session for statements that commit one by one. Raises as `transaction` does."""
        if self._pool is None:
            raise RuntimeError("the database is not open; enter it with `async with`")
        try:
            async with self._pool.acquire(timeout=_CONNECT_TIMEOUT_S) as connection:
                try:
                    yield connection
                except asyncpg.InterfaceError as error:
                    # asyncpg reports the use of a session that the server has closed as a mistake of the caller.
                    if not _is_lost(connection):
                        raise
                    raise self._down(error) from error
        except _AWAY as error:
            raise self._down(error) from error
        except _RACES as error:
            raise Fenced(f"another transaction was faster ({describe(error)}); look up again") from error

    def _down(self, error: BaseException) -> DependencyDown:
        return down(self._dsn, error)


def down(dsn: SecretStr, error: BaseException) -> DependencyDown:
    """Return what `error` says about the server of a DSN, and what to do."""
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
        return LoginRefused(where(dsn), describe(error))
    return DependencyDown("PostgreSQL", where(dsn), describe(error))


async def _as_it_is(_: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Give a session back without telling the server: we set, lock and listen to nothing that outlives transactions."""


def _is_lost(connection: Connection) -> bool:
    """Tell whether the server has closed a session; the pool may have taken it back by then."""
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        return True


def where(dsn: SecretStr) -> str:
    """Return host, port and database of a DSN: what a person may see of it."""
    text = dsn.get_secret_value()
    return text.rsplit("@", 1)[-1].removeprefix("postgresql://").removeprefix("postgres://").split("?", 1)[0]


def describe(error: BaseException) -> str:
    """Return one line about `error`; some of asyncpg's and asyncio's errors have no text, some list sockets."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return " ".join(str(error).split()) or type(error).__name__
