"""PostgreSQL: the pool, transactions, and what its errors mean to a worker."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Self, TypeAlias

import asyncpg
from asyncpg.pool import PoolConnectionProxy
from pydantic import SecretStr

from schemas.errors import Fenced
from workers.runtime.postgres_errors import AWAY, RACES, STATEMENTS_LOST, describe, down
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
    # The look-up after a lock must see what the lock waited for.
    "default_transaction_isolation": "read committed",
    # A worker whose machine vanished in mid-batch must not keep its locks until TCP gives up, which takes hours.
    # No decision between two statements takes that long.
    "idle_in_transaction_session_timeout": "30s",
    # Guards that an account has for people are none for workers, which bring their own: each statement has a time-out.
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_session_timeout": "0",
}

#: For workers, whose every statement finds its rows by key. The planner reads small tables whole instead, for each
#: batch, and goes on while they grow: at 20,000 rows that is three times the work, at a million it stops the worker.
BY_KEY: Mapping[str, str] = {"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off"}


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
        except (*AWAY, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            # Whatever a server says before the first statement is a refusal.
            raise down(self._dsn, error) from error

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
            connection = await self._pool.acquire(timeout=_CONNECT_TIMEOUT_S)
        except (*AWAY, asyncpg.PostgresError) as error:
            raise down(self._dsn, error) from error
        try:
            try:
                yield connection
            except asyncpg.InterfaceError as error:
                # asyncpg reports the use of a session that the server has closed as a mistake of the caller.
                if not _is_lost(connection):
                    raise
                raise down(self._dsn, error) from error
            except STATEMENTS_LOST as error:
                # The session's own list of statements is wrong from now on.
                connection.terminate()
                raise down(self._dsn, error) from error
            finally:
                await self._pool.release(connection)
        except AWAY as error:
            raise down(self._dsn, error) from error
        except RACES as error:
            raise Fenced(f"another transaction was faster ({describe(error)}); look up again") from error


async def _as_it_is(_: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Give a session back without telling the server: we set, lock and listen to nothing that outlives transactions."""


def _is_lost(connection: Connection) -> bool:
    """Tell whether the server has closed a session; the pool may have taken it back by then."""
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        return True
