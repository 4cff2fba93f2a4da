"""What a killed worker committed and did not publish goes out before anything newer, whichever topic comes first."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import MappingProxyType
from unittest.mock import AsyncMock

import asyncpg
import pytest
import pytest_asyncio

from schemas.envelope import Event
from tests.support.edge import DEADLINE_S, PARTITIONS, completed, ended, started
from topics.catalog import Topic
from topics.codec import decode, encode
from topics.keys import partition_of
from topics.records import ReceivedRecord, Record
from workers.logic.memory.commands import Rules
from workers.runtime.health import Health
from workers.runtime.positions import applied_positions
from workers.runtime.postgres import Database
from workers.settings import Settings, read_settings
from workers.variables.application import build_app, register
from workers.variables.batch import BatchProcessor, Finished
from workers.variables.store import Lane


class Killed(Exception):  # noqa: N818 - it is no error
    """Where `kill -9` would have struck."""


class Published:
    """A publisher that keeps what it got, or dies first."""

    def __init__(self, *, dies: bool = False) -> None:
        self.records: list[Record] = []
        self.dies = dies

    async def partitions(self, topic: Topic, seen: int = 0) -> int:
        return PARTITIONS

    async def publish(self, records: Iterable[Record]) -> Sequence[object]:
        if self.dies:
            raise Killed
        self.records += records
        return []

    @property
    def revisions(self) -> list[int]:
        events = [decode(each.value) for each in self.records if each.topic is Topic.VARIABLE_UPDATES]
        return [int(str(event.data["revision"])) for event in events if event.type == "variables.revised"]


@pytest_asyncio.fixture
async def settings(database: str) -> AsyncIterator[Settings]:
    yield read_settings(postgres_dsn=database)


async def process(
    settings: Settings,
    publisher: Published,
    *batches: Sequence[ReceivedRecord],
    evicts: bool = False,
    batch_size: int = 500,
    finished: Finished = lambda _: None,
    seen: Mapping[Lane, int] = MappingProxyType({}),
    ends: Mapping[Lane, int] = MappingProxyType({}),
) -> None:
    """Be a new worker and process batches; it has `seen` ends of logs, and Kafka says, when asked, where they end."""

    async def handle(_: object) -> None:
        """Faust does not run here."""

    app = build_app(settings)
    table = register(app, settings, handle)
    health = Health("variables", ("kafka", "postgres"))
    table.note_published = lambda *_: None  # type: ignore[method-assign]
    async with Database.from_settings(settings, "test") as database:
        processor = BatchProcessor(
            database,
            publisher,  # type: ignore[arg-type]
            table,
            group="g",
            rules=Rules(),
            health=health,
            stop=asyncio.Event(),
            log_ends=AsyncMock(return_value=ends),
            batch_size=batch_size,
        )
        for batch in batches:
            await processor.process(batch, seen, finished)
        if evicts:
            await processor.evict(-1)


def received(event: Event, offset: int, topic: Topic) -> ReceivedRecord:
    place = partition_of(str(event.subject).encode(), PARTITIONS)
    return ReceivedRecord(topic, place, offset, str(event.subject).encode(), encode(event))


FIRST = received(started("run"), 0, Topic.EXECUTION_EVENTS)
OUTPUT = received(completed("run", "a", x=1), 0, Topic.ACTIVITY_OUTPUTS)
END = received(ended("run"), 1, Topic.EXECUTION_EVENTS)
LATER = received(completed("run", "b", x=2), 1, Topic.EXECUTION_EVENTS)
LATEST = received(completed("run", "c", x=3), 2, Topic.EXECUTION_EVENTS)


async def test_unpublished_revisions_go_out_before_a_newer_one(settings: Settings) -> None:
    await process(settings, Published(), [FIRST])
    with pytest.raises(Killed):
        await process(settings, Published(dies=True), [OUTPUT])

    published = Published()
    await process(settings, published, [LATER], [OUTPUT])

    assert published.revisions[:3] == [1, 2, 3]


class DiesLate(Published):
    """Dies in a publication once the batch after it is committed."""

    def __init__(self, dsn: str, revision: int) -> None:
        super().__init__()
        self._dsn = dsn
        self._revision = revision

    async def publish(self, records: Iterable[Record]) -> Sequence[object]:
        connection = await asyncpg.connect(self._dsn)
        try:
            async with asyncio.timeout(DEADLINE_S):
                while await connection.fetchval("SELECT revision FROM executions") != self._revision:
                    await asyncio.sleep(0.01)
        finally:
            await connection.close()
        raise Killed


async def test_batches_that_overlap_are_published_in_their_order(settings: Settings) -> None:
    published = Published()

    await process(settings, published, [FIRST, OUTPUT, LATER, LATEST], batch_size=1)

    assert published.revisions == [1, 2, 3, 4]


async def test_a_batch_may_be_acknowledged_when_it_is_published_whatever_becomes_of_the_next(
    settings: Settings,
) -> None:
    published = Published()
    told: list[ReceivedRecord] = []

    def finished(records: Sequence[ReceivedRecord]) -> None:
        told.extend(records)
        published.dies = True

    with pytest.raises(Killed):
        await process(settings, published, [FIRST, OUTPUT, LATER], batch_size=1, finished=finished)

    assert told == [FIRST]
    assert published.revisions == [1]


async def test_what_was_being_published_while_the_next_batch_was_committed_goes_out_first(settings: Settings) -> None:
    await process(settings, Published(), [FIRST])
    dies_late = DiesLate(settings.postgres_dsn.get_secret_value(), revision=3)
    with pytest.raises(Killed):
        await process(settings, dies_late, [OUTPUT, LATER], batch_size=1)

    published = Published()
    await process(settings, published, [LATEST])

    assert published.revisions == [1, 2, 3, 4]


async def test_they_go_out_although_the_next_worker_was_killed_too(settings: Settings) -> None:
    await process(settings, Published(), [FIRST])
    for batch in ([OUTPUT], [LATER]):
        with pytest.raises(Killed):
            await process(settings, Published(dies=True), batch)

    published = Published()
    await process(settings, published, [LATEST])

    assert published.revisions == [1, 2, 3, 4]


async def test_one_of_them_that_comes_again_brings_those_before_it(settings: Settings) -> None:
    await process(settings, Published(), [FIRST])
    with pytest.raises(Killed):
        await process(settings, Published(dies=True), [OUTPUT, LATER])

    published = Published()
    await process(settings, published, [LATER])

    assert published.revisions == [1, 2, 3]


async def test_what_is_published_is_not_sent_again_for_every_batch(settings: Settings) -> None:
    published = Published()

    await process(settings, published, [FIRST], [OUTPUT], [LATER], [LATEST])

    assert published.revisions == [1, 2, 3, 4]


async def test_an_old_event_that_comes_again_brings_itself_only(settings: Settings) -> None:
    await process(settings, Published(), [FIRST], [OUTPUT], [LATER])

    published = Published()
    await process(settings, published, [FIRST])

    assert published.revisions == [1]


async def test_a_new_owner_sends_no_more_than_the_last_batch_again(settings: Settings) -> None:
    await process(settings, Published(), [FIRST], [OUTPUT], [LATER])

    published = Published()
    await process(settings, published, [LATEST])

    assert published.revisions == [3, 4]


async def test_what_came_again_twice_brings_the_others_once(settings: Settings) -> None:
    """Copies of outcomes bring copies of commands, which bring copies of outcomes: that must come to an end."""
    with pytest.raises(Killed):
        await process(settings, Published(dies=True), [FIRST, OUTPUT, LATER])

    published = Published()
    await process(settings, published, [LATER], [LATER], [OUTPUT])

    assert published.revisions == [1, 2, 3, 3, 2]


async def test_what_left_the_table_is_published_and_not_sent_again(settings: Settings) -> None:
    await process(settings, Published(), [FIRST], [END], evicts=True)

    published = Published()
    await process(settings, published, [LATEST])

    assert published.revisions == [3]


@pytest.mark.parametrize(("end", "position"), [(3, 3), (1, 1)])
async def test_a_position_goes_back_only_where_the_topic_was_made_anew(
    settings: Settings, end: int, position: int
) -> None:
    """A worker that was held up has seen an end that others have gone past since."""
    lane = FIRST.topic, FIRST.partition
    await process(settings, Published(), [FIRST, LATER, LATEST])

    await process(settings, Published(), [FIRST], seen={lane: 1}, ends={lane: end})

    async with Database.from_settings(settings, "test") as database, database.session() as connection:
        assert (await applied_positions(connection, "g"))[lane] == position
