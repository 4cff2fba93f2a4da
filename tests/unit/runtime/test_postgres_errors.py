"""What PostgreSQL's errors mean, by SQLSTATE."""

import inspect

import asyncpg
import pytest
from asyncpg import exceptions
from pydantic import SecretStr

from workers.runtime.postgres_errors import AWAY, RACES, down

DSN = SecretStr("postgresql://me:hunter2@db:5432/tally")
OUTAGES = ("08", "25006", "25P03", "25P04", "28", "3D", "42501", "53", "57", "58")
LOST_RACES = ("40", "23505", "55P03")


def kinds() -> list[type[asyncpg.PostgresError]]:
    found = inspect.getmembers(
        exceptions, lambda each: inspect.isclass(each) and issubclass(each, asyncpg.PostgresError)
    )
    return [kind for _, kind in found if getattr(kind, "sqlstate", None)]


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_a_sqlstate_is_an_outage_or_a_race_or_a_bug(kind: type[asyncpg.PostgresError]) -> None:
    state = str(kind.sqlstate)

    assert issubclass(kind, AWAY) is state.startswith(OUTAGES)
    assert issubclass(kind, RACES) is (
        state.startswith(LOST_RACES) or issubclass(kind, asyncpg.InvalidCachedStatementError)
    )


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (asyncpg.ReadOnlySQLTransactionError("cannot execute INSERT"), "point TALLY_POSTGRES_DSN to the primary"),
        (asyncpg.DiskFullError("could not extend file"), "make room on its disk"),
        (asyncpg.TooManyConnectionsError("too many clients"), "lower TALLY_POSTGRES_POOL_SIZE"),
        (asyncpg.InsufficientPrivilegeError("permission denied"), "grant the rights"),
        (asyncpg.ObjectNotInPrerequisiteStateError("is not currently accepting"), "accept connections again"),
    ],
)
def test_a_server_that_answers_is_not_said_to_be_silent(error: asyncpg.PostgresError, remedy: str) -> None:
    told = str(down(DSN, error))

    assert told.startswith(f"PostgreSQL at db:5432/tally answers, but cannot work ({error})")
    assert remedy in told


def test_of_a_session_that_the_server_ended_the_reason_is_told() -> None:
    closed = asyncpg.InterfaceError("the underlying connection is closed")
    closed.__context__ = asyncpg.TransactionTimeoutError("terminating connection due to transaction timeout")

    assert "due to transaction timeout); raise transaction_timeout" in str(down(DSN, closed))
