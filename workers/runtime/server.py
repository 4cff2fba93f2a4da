"""What may keep a server that answers from committing, or from keeping what was committed: for those who look."""

from collections.abc import Sequence
from typing import NamedTuple

from workers.runtime.postgres import Connection
from workers.runtime.queries import load_queries

_QUERIES = load_queries(__file__, "server.sql")


class ServerState(NamedTuple):
    """`durable` is false where the server was told not to wait for disks."""

    standby: bool
    read_only: bool
    durable: bool


class HeldUp(NamedTuple):
    """A worker that waits for another session's lock."""

    worker: str
    seconds: int
    holder: int
    holder_name: str


async def server_state(connection: Connection) -> ServerState:
    """Return whether the server can commit, and keep it."""
    row = await connection.fetchrow(_QUERIES["server_state"])
    assert row is not None, "the statement selects one row"
    return ServerState(*row)


async def held_up(connection: Connection, application_names: Sequence[str]) -> HeldUp | None:
    """Return the one of these sessions that has waited longest for a lock, if one has waited for seconds."""
    row = await connection.fetchrow(_QUERIES["held_up"], application_names)
    return None if row is None else HeldUp(*row)
