"""Where Faust 0.15.3 by itself loses or repeats events, the variable worker does neither.

Each trap was reproduced with plain Faust; the docstrings say what plain Faust does.
"""

import asyncio

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

from schemas.envelope import Event
from tests.support import stack
from tests.support.edge import (
    PARTITIONS,
    Edge,
    assert_table_is_right_or_behind,
    assert_whole,
    completed,
    started,
)
from topics.catalog import Topic
from topics.codec import encode
from topics.keys import partition_of

FOLD_WITH_A_BUG = """
from workers.logic.variables import fold
def apply(*_, **__):
    raise RuntimeError("a bug in the fold")
fold.apply = apply
"""
CHANGELOG_UNREACHABLE = """
from schemas.errors import DependencyDown
from topics import publisher
publish = publisher.Publisher.publish
async def changelog_fails(self, records):
    records = list(records)
    if any("changelog" in record.topic for record in records):
        raise DependencyDown("Kafka", "a broker", "no acknowledgement")
    return await publish(self, records)
publisher.Publisher.publish = changelog_fails
"""
SLOW_PUBLISHING = """
import asyncio
from topics import publisher
publish = publisher.Publisher.publish
async def slowly(self, records):
    await asyncio.sleep(1.5)
    return await publish(self, records)
publisher.Publisher.publish = slowly
"""


def runs(count: int = 20) -> list[Event]:
    return [
        event for run in range(count) for event in (started(f"run-{run}"), completed(f"run-{run}", "one", value=run))
    ]


async def revisions(variables: Edge) -> int:
    async with variables.database() as connection:
        count: int = await connection.fetchval("SELECT count(*) FROM revisions")
        return count


async def until(variables: Edge, count: int) -> None:
    async with asyncio.timeout(60):
        while await revisions(variables) < count:
            await asyncio.sleep(0.05)


async def test_an_exception_in_the_agent_ends_the_process_and_acknowledges_nothing(variables: Edge) -> None:
    """Plain Faust acknowledges the event (a whole `take`) and goes on with the next."""
    await variables.publish(runs())
    worker = await variables.start_worker(FOLD_WITH_A_BUG)

    assert await worker.exit_code() == 70
    assert "a bug in the fold" in worker.lines()
    assert not any(offset > 0 for offset in (await variables.committed()).values())

    await variables.start_worker()
    await variables.drained()
    await assert_whole(variables, runs())


async def test_positions_wait_for_the_changelog(variables: Edge) -> None:
    """Plain Faust's commit waits 0.1 seconds for queued changelog records, then commits without them."""
    await variables.publish(runs())
    worker = await variables.start_worker(CHANGELOG_UNREACHABLE)
    await until(variables, len(runs()))
    await asyncio.sleep(3)

    assert not any(offset > 0 for offset in (await variables.committed()).values())
    assert await worker.stop() == 0
    assert not any(offset > 0 for offset in (await variables.committed()).values())

    await variables.start_worker()
    await variables.drained()
    await assert_whole(variables, runs())


async def test_a_killed_batch_is_not_committed(variables: Edge) -> None:
    """Plain Faust with concurrency, or without wait-empty, commits events that are still in work."""
    await variables.publish(runs())
    worker = await variables.start_worker(SLOW_PUBLISHING)
    await until(variables, 1)

    await worker.kill()

    assert not any(offset > 0 for offset in (await variables.committed()).values())
    await variables.start_worker()
    await variables.drained()
    await assert_whole(variables, runs())


async def test_a_stop_finishes_the_batch_and_commits_it(variables: Edge) -> None:
    """Plain Faust without wait-empty acknowledges the cancelled event without its effects."""
    worker = await variables.start_worker(SLOW_PUBLISHING)
    await variables.publish(runs(1))
    await until(variables, 2)

    assert await worker.stop() == 0

    assert sum((await variables.committed()).values()) == 2
    await assert_whole(variables, runs(1))


async def test_batches_write_the_table(variables: Edge) -> None:
    """Plain Faust cannot change a table from a `take` batch: every set raises."""
    await variables.start_worker()
    await variables.publish(runs())
    await variables.drained()

    assert await assert_table_is_right_or_behind(variables) == 20


@pytest.mark.skipif(not stack.is_kafka(), reason="the embedded broker has no transactions")
async def test_gaps_of_transaction_markers_hold_nothing_up(variables: Edge) -> None:
    """Plain Faust's list of acknowledged offsets stalls at gaps that other producers' markers leave."""
    producer = AIOKafkaProducer(
        bootstrap_servers=variables.settings.kafka_bootstrap_servers, transactional_id=variables.settings.topic_prefix
    )
    await producer.start()
    try:
        for event in runs():
            async with producer.transaction():
                await producer.send_and_wait(
                    variables.settings.kafka().wire_name(Topic.EXECUTION_EVENTS),
                    encode(event),
                    b"" + (event.subject or "").encode(),
                )
    finally:
        await producer.stop()
    await variables.start_worker()
    await until(variables, len(runs()))
    # A marker is the last thing in each log; a record after it shows that positions pass it.
    await variables.publish([completed(f"run-{run}", "two") for run in range(20)])
    await variables.drained()

    await assert_whole(variables, runs())


async def test_an_input_topic_made_anew_is_read_from_its_start(variables: Edge) -> None:
    """The stored positions are beyond the new log; its events are new all the same."""
    worker = await variables.start_worker()
    await variables.publish(runs())
    await variables.drained()
    assert await worker.stop() == 0
    await variables.make_anew(Topic.EXECUTION_EVENTS)

    await variables.start_worker()
    second = [completed(f"run-{run}", "two") for run in range(5)]
    await variables.publish(second)
    await until(variables, len(runs()) + 5)
    await variables.drained()

    await assert_whole(variables, runs() + second)


async def test_the_worker_makes_no_topics(variables: Edge) -> None:
    """Plain Faust declares a leader topic and the changelog, with counts of its own."""
    await variables.start_worker()
    await variables.publish(runs())
    await variables.drained()

    admin = AIOKafkaAdminClient(bootstrap_servers=variables.settings.kafka_bootstrap_servers)
    await admin.start()
    try:
        names = {name for name in await admin.list_topics() if name.startswith(variables.settings.topic_prefix)}
    finally:
        await admin.close()
    assert names == {variables.settings.kafka().wire_name(topic) for topic in Topic}


async def test_a_record_in_the_wrong_partition_is_forwarded_and_applied_once(variables: Edge) -> None:
    """Faust's table follows the record's partition: the store would live in two places."""
    event = started("run")
    wrong = (partition_of(b"run", PARTITIONS) + 1) % PARTITIONS
    await variables.publish_raw(Topic.EXECUTION_EVENTS, None, encode(event), partition=wrong)
    await variables.start_worker()
    await until(variables, 1)
    await variables.drained()

    await assert_whole(variables, [event])
    lying = await variables.read(Topic.EXECUTION_EVENTS)
    assert [(record.partition, record.key) for record in lying if record.partition != wrong] == [
        (partition_of(b"run", PARTITIONS), b"run")
    ]


async def test_a_poison_record_becomes_a_dead_letter_and_the_partition_moves_on(variables: Edge) -> None:
    """Plain Faust acknowledges what it cannot decode and restarts the agent."""
    for value in (b"not json", b"", b'{"specversion":"1.0"}', None):
        await variables.publish_raw(Topic.ACTIVITY_OUTPUTS, b"run", value)
    await variables.start_worker()
    await variables.publish([started("run")])
    await variables.drained()

    codes = [record.event.data["code"] for record in await variables.read(Topic.DEAD_LETTERS)]
    assert sorted(str(code) for code in codes) == ["envelope_invalid", "malformed", "malformed", "malformed"]
    assert await revisions(variables) == 1
