"""The memory worker's batches on real tables, fed by hand: no Kafka."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from pydantic import SecretStr

from schemas.envelope import Event
from tests.support.memory_store import RULES, START
from topics.catalog import Topic
from topics.codec import encode
from topics.records import ReceivedRecord
from workers.memory.batch import MemoryBatches
from workers.memory.compose import Committed
from workers.memory.intake import take_in
from workers.runtime.postgres import BY_KEY, Database

RETENTION = timedelta(days=8)
#: `clock_timestamp` is found in a schema of the test before PostgreSQL's own.
OWN_CLOCK = {**BY_KEY, "search_path": "test_clock, public, pg_catalog"}
_CLOCK = f"""
    CREATE SCHEMA test_clock;
    CREATE TABLE test_clock.now AS SELECT timestamptz '{START.isoformat()}' AS moment;
    CREATE FUNCTION test_clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql STABLE
        AS 'SELECT moment FROM test_clock.now'
"""


class Worker:
    """A worker's batches, fed by hand."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.batches = MemoryBatches(
            database, RULES, group="test.memory", outcome_retention=RETENTION, log_ends=self._log_ends
        )
        self._log_end: int | None = None

    async def _log_ends(self) -> dict[int, int]:
        return {} if self._log_end is None else {0: self._log_end}

    async def apply(self, *records: ReceivedRecord, log_end: int | None = None) -> Committed:
        self._log_end = log_end
        return await self.batches.apply(take_in(records, RULES), {} if log_end is None else {0: log_end})


def record(event: Event, offset: int, *, age: timedelta = timedelta(0)) -> ReceivedRecord:
    timestamp = int((datetime.now(UTC) - age).timestamp() * 1000)
    return ReceivedRecord(Topic.MEMORY_COMMANDS, 0, offset, None, encode(event), (), timestamp)


@asynccontextmanager
async def with_own_clock(dsn: str) -> AsyncIterator[Database]:
    """Open a database whose clock stands still until `pass_time`."""
    database = Database(SecretStr(dsn), pool_size=2, application_name="test", session=OWN_CLOCK)
    async with database:
        async with database.session() as connection:
            await connection.execute(_CLOCK)
        yield database


async def pass_time(database: Database, seconds: float) -> None:
    """Set the clock of such a database forward."""
    async with database.session() as connection:
        await connection.execute("UPDATE test_clock.now SET moment = moment + make_interval(secs => $1)", seconds)
