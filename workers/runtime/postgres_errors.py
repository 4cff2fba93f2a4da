"""What an error of PostgreSQL means to a worker: an outage, a race, or a bug.

By SQLSTATE (PostgreSQL's documentation, appendix A). An outage, and the same statement works later: 08 connection,
25006 read-only, 25P03 and 25P04 session ended by a time-out, 28 login, 3D no such database, 42501 rights,
53 resources, 57 operator, 58 system; and whatever a server says before the first statement. A race, and a look-up
decides anew: 40 rollback, 23505 unique, 55P03 lock, a cached plan that no longer fits. All else is a bug: of ours, or
a database that is damaged or not migrated; going on would not mend it.
"""

import asyncpg
from pydantic import SecretStr

from schemas.errors import DependencyDown

#: The server or the way to it is away, or it cannot do it now.
AWAY = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TransactionTimeoutError,
    asyncpg.PostgresSystemError,
    # What a session that broke in mid-statement answers when it is given back ("another operation is in progress").
    asyncpg.InternalClientError,
)
#: Another transaction was faster: roll back, look up again, decide again.
RACES = (
    asyncpg.TransactionRollbackError,
    asyncpg.UniqueViolationError,
    asyncpg.LockNotAvailableError,
    asyncpg.InvalidCachedStatementError,
)
#: The server behind the session is another one than before: a pooler that lends it for one transaction at a time.
STATEMENTS_LOST = (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)

#: What to do, for the first that fits. Errors of the connection itself are left to `DependencyDown`.
_REMEDIES: tuple[tuple[type[BaseException], str], ...] = (
    (
        asyncpg.ReadOnlySQLTransactionError,
        "point TALLY_POSTGRES_DSN to the primary, or end default_transaction_read_only",
    ),
    (asyncpg.DiskFullError, "make room on its disk"),
    (
        asyncpg.TooManyConnectionsError,
        "raise max_connections or the limit of its role, or lower TALLY_POSTGRES_POOL_SIZE",
    ),
    (asyncpg.InsufficientResourcesError, "give it what it lacks"),
    (asyncpg.InsufficientPrivilegeError, "grant the rights to the account of TALLY_POSTGRES_DSN, best the owner's"),
    (asyncpg.ObjectNotInPrerequisiteStateError, "let the database accept connections again"),
    (asyncpg.InvalidCatalogNameError, "create the database, or correct TALLY_POSTGRES_DSN"),
    (asyncpg.IdleInTransactionSessionTimeoutError, "see what holds up the worker's machine"),
    (asyncpg.TransactionTimeoutError, "raise transaction_timeout for the account of TALLY_POSTGRES_DSN"),
    (asyncpg.QueryCanceledError, "see who cancels the statements of the account of TALLY_POSTGRES_DSN"),
    (asyncpg.PostgresSystemError, "see its log"),
    (STATEMENTS_LOST[0], "let its pooler lend whole sessions"),
    (STATEMENTS_LOST[1], "let its pooler lend whole sessions"),
)


class LoginRefused(DependencyDown):
    """The server answers, but not to this user: another DSN is needed."""

    def __init__(self, where: str, cause: str) -> None:
        super().__init__("PostgreSQL", where, cause)
        refused = f"PostgreSQL at {where} refuses the user or password ({cause})"
        self.args = (f"{refused}; set TALLY_POSTGRES_DSN as `tally up` printed it, or to your own server's account",)


class Unable(DependencyDown):
    """The server answers, and says why it cannot do it now."""

    def __init__(self, where: str, cause: str, remedy: str) -> None:
        super().__init__("PostgreSQL", where, cause)
        self.args = (f"PostgreSQL at {where} answers, but cannot work ({cause}); {remedy}",)


def down(dsn: SecretStr, error: BaseException) -> DependencyDown:
    """Return what `error` says about the server of a DSN, and what to do."""
    # Of a session that the server ended, asyncpg tells the next who uses it only that it is closed.
    if isinstance(error, asyncpg.InterfaceError) and isinstance(error.__context__, asyncpg.PostgresError):
        error = error.__context__
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
        return LoginRefused(where(dsn), describe(error))
    for kind, remedy in _REMEDIES:
        if isinstance(error, kind):
            return Unable(where(dsn), describe(error), remedy)
    return DependencyDown("PostgreSQL", where(dsn), describe(error))


def where(dsn: SecretStr) -> str:
    """Return host, port and database of a DSN: what a person may see of it."""
    text = dsn.get_secret_value()
    return text.rsplit("@", 1)[-1].removeprefix("postgresql://").removeprefix("postgres://").split("?", 1)[0]


def describe(error: BaseException) -> str:
    """Return one line about `error`; some of asyncpg's and asyncio's errors have no text, some list sockets."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return " ".join(str(error).split()) or type(error).__name__
