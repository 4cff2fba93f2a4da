"""The memory worker's batches on real tables, fed by hand: no Kafka."""

from datetime import UTC, datetime, timedelta

from schemas.envelope import Event
from tests.support.memory_store import RULES
from topics.catalog import Topic
from topics.codec import encode
from topics.records import ReceivedRecord
from workers.memory.batch import MemoryBatches
from workers.memory.compose import Committed
from workers.memory.intake import take_in
from workers.runtime.postgres import Database

RETENTION = timedelta(days=8)


class Worker:
    """A worker's batches, fed by hand."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.batches = MemoryBatches(database, RULES, group="test.memory", outcome_retention=RETENTION)

    async def apply(self, *records: ReceivedRecord, log_end: int | None = None) -> Committed:
        return await self.batches.apply(take_in(records, RULES), {} if log_end is None else {0: log_end})


def record(event: Event, offset: int, *, age: timedelta = timedelta(0)) -> ReceivedRecord:
    timestamp = int((datetime.now(UTC) - age).timestamp() * 1000)
    return ReceivedRecord(Topic.MEMORY_COMMANDS, 0, offset, None, encode(event), (), timestamp)
