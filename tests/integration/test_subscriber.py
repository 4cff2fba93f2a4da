"""Reading topics at a real broker: from the beginning, the end, a moment; alone or in a group."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
import pytest_asyncio

from schemas.activities import VariablesSet
from schemas.envelope import Event
from schemas.errors import Rejection
from tests.support import stack
from topics.admin import TopicAdmin
from topics.catalog import CATALOG, Topic
from topics.codec import encode
from topics.connection import KafkaConnection
from topics.groups import extents
from topics.publisher import Publisher
from topics.records import Record
from topics.subscriber import Received, Subscriber

TOPIC = Topic.EXECUTION_EVENTS


@pytest_asyncio.fixture
async def kafka(kafka_bootstrap_servers: str, topic_prefix: str) -> KafkaConnection:
    connection = KafkaConnection(bootstrap_servers=kafka_bootstrap_servers, prefix=topic_prefix)
    async with TopicAdmin(connection) as admin:
        await admin.create(partitions=2, replication=1)
    return connection


@pytest_asyncio.fixture
async def publisher(kafka: KafkaConnection) -> AsyncIterator[Publisher]:
    publisher = Publisher(kafka, "tests")
    await publisher.start()
    yield publisher
    await publisher.stop()


_numbers = count()


async def say(publisher: Publisher, number: int, key: str = "run-1") -> None:
    event = Event(
        id=f"e-{next(_numbers)}", source="/tests", type="variables.set", subject=key, data={"variables": {"n": number}}
    )
    await publisher.publish([Record(TOPIC, key.encode(), encode(event))])


def number_of(received: Received) -> object:
    data = received.data
    assert isinstance(data, VariablesSet)
    return data.variables["n"]


async def take(subscriber: Subscriber, wanted: int) -> list[object]:
    found: list[object] = []
    async with asyncio.timeout(20):
        async for received in subscriber:
            found.append(number_of(received))
            if len(found) == wanted:
                break
    return found


async def test_topics_are_created_once_and_then_agree_with_the_catalog(kafka: KafkaConnection) -> None:
    async with TopicAdmin(kafka) as admin:
        again = await admin.create(partitions=2, replication=1)
        findings = await admin.check(partitions=2, replication=1, outcome_retention_days=8)

        assert again == []
        assert findings == []
        assert {topic.topic for topic in await admin.existing()} == {spec.topic for spec in CATALOG}


async def test_from_the_beginning_everything_is_read_and_reading_ends(
    kafka: KafkaConnection, publisher: Publisher
) -> None:
    for number in range(5):
        await say(publisher, number, key=f"run-{number}")

    async with Subscriber(kafka, [TOPIC, Topic.NODE_RESULTS], start="beginning") as subscriber:
        found = [number_of(received) async for received in subscriber.until_end()]

    assert sorted(found) == [0, 1, 2, 3, 4]


@pytest.mark.skipif(not stack.is_kafka(), reason="the embedded broker takes records of any size")
async def test_a_record_that_no_broker_takes_is_no_outage(publisher: Publisher) -> None:
    with pytest.raises(Rejection, match="larger than the broker takes") as refused:
        await publisher.publish([Record(TOPIC, b"k", b"x" * 6_000_000)])

    assert refused.value.reason == "too_large"


async def test_records_that_were_published_together_are_all_read(kafka: KafkaConnection, publisher: Publisher) -> None:
    events = [
        Event(id=f"t-{n}", source="/tests", type="variables.set", subject="run-1", data={"variables": {"n": n}})
        for n in range(5)
    ]
    await publisher.publish([Record(TOPIC, b"run-1", encode(event)) for event in events])

    async with Subscriber(kafka, [TOPIC], start="beginning") as subscriber:
        found = [number_of(received) async for received in subscriber.until_end()]
    async with Subscriber(kafka, [TOPIC], start=2) as subscriber:
        newest = [number_of(received) async for received in subscriber.until_end()]
    ends = [end for _, end in (await extents(kafka, [TOPIC])).values()]

    assert found == [0, 1, 2, 3, 4]
    assert newest == [3, 4]
    assert sorted(ends) == [0, 5]


async def test_from_the_end_only_what_comes_later_is_read(kafka: KafkaConnection, publisher: Publisher) -> None:
    await say(publisher, 1)

    async with Subscriber(kafka, [TOPIC]) as subscriber:
        await say(publisher, 2)

        assert await take(subscriber, 1) == [2]


async def test_from_a_moment_on(kafka: KafkaConnection, publisher: Publisher) -> None:
    await say(publisher, 1)
    await asyncio.sleep(0.05)
    moment = datetime.now(UTC)
    await asyncio.sleep(0.05)
    await say(publisher, 2)

    async with Subscriber(kafka, [TOPIC], start=moment) as subscriber:
        assert [number_of(received) async for received in subscriber.until_end()] == [2]
    async with Subscriber(kafka, [TOPIC], start=moment + timedelta(days=1)) as subscriber:
        assert [received async for received in subscriber.until_end()] == []


async def test_bytes_that_are_no_event_say_why_and_reading_goes_on(
    kafka: KafkaConnection, publisher: Publisher
) -> None:
    await publisher.publish([Record(TOPIC, b"run-1", b"{oops"), Record(TOPIC, b"run-1", None)])
    await say(publisher, 3)

    async with Subscriber(kafka, [TOPIC], start="beginning") as subscriber:
        broken, tombstone, good = [received async for received in subscriber.until_end()]

    assert broken.rejection is not None
    assert broken.rejection.reason == "malformed"
    assert tombstone.event is None
    assert tombstone.rejection is None
    assert number_of(good) == 3


async def test_records_of_other_keys_are_passed_over(kafka: KafkaConnection, publisher: Publisher) -> None:
    await say(publisher, 1, key="run-1")
    await say(publisher, 2, key="run-2")

    async with Subscriber(kafka, [TOPIC], start="beginning", keys={b"run-2"}) as subscriber:
        assert [number_of(received) async for received in subscriber.until_end()] == [2]


async def test_a_loop_that_is_left_goes_on_where_it_was(kafka: KafkaConnection, publisher: Publisher) -> None:
    for number in range(3):
        await say(publisher, number)

    async with Subscriber(kafka, [TOPIC], start="beginning") as subscriber:
        assert await take(subscriber, 1) == [0]
        assert await take(subscriber, 2) == [1, 2]


@pytest.mark.slow
async def test_a_group_goes_on_after_what_it_has_read(kafka: KafkaConnection, publisher: Publisher) -> None:
    async with Subscriber(kafka, [TOPIC], start="beginning", group="readers") as subscriber:
        for number in (1, 2):
            await say(publisher, number)
        await take(subscriber, 2)
        # Asking for the next record is what acknowledges those before it.
        await say(publisher, 3)
        await take(subscriber, 1)

    async with Subscriber(kafka, [TOPIC], start="beginning", group="readers") as subscriber:
        found = await take(subscriber, 1)

    assert found == [3]
