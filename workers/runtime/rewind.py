"""PostgreSQL that is behind Kafka's positions was restored from a backup: what came since is read again.

A position is acknowledged to Kafka after PostgreSQL has committed it, so at any moment PostgreSQL is as far or
further. Where it is not, going on at Kafka's positions would lose what lies in between.
"""

import asyncio
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalGenerationError, KafkaError, UnknownMemberIdError

from schemas.errors import TallyError
from topics.away import kafka_down
from topics.catalog import Topic
from topics.connection import KafkaConnection
from topics.publisher import Publisher
from workers.runtime.logs import batch_logger
from workers.runtime.positions import applied_positions, deleted_unread
from workers.runtime.postgres import Database

#: On a cluster that never had a group the first question meets no coordinator; aiokafka asks again only when the
#: metadata are old. A new consumer asks at once.
_ANSWER_S = 3.0
_OTHERS_RUN = (CommitFailedError, IllegalGenerationError, UnknownMemberIdError)


class PositionsAhead(TallyError):  # noqa: N818
    """Kafka is ahead of PostgreSQL, and only an empty group can be set back."""

    code = "positions_ahead"
    retriable = True


async def rewind(
    connection: KafkaConnection,
    publisher: Publisher,
    database: Database,
    *,
    worker: str,
    group: str,
    topics: Sequence[Topic],
) -> None:
    """Set a group back to what PostgreSQL has applied, before this worker joins it; as a rule there is nothing to do.

    Where the topics do not reach back so far, it says so.
    Raises `DependencyDown`; `PositionsAhead` while other workers of the group run: all must be stopped.
    """
    partitions = {
        TopicPartition(connection.wire_name(topic), number): (topic, number)
        for topic in topics
        for number in range(await publisher.partitions(topic))
    }
    # Assigned and not subscribed: it looks on, and does not join.
    consumer = AIOKafkaConsumer(
        **connection.client_options(f"tally-{worker}"), group_id=group, enable_auto_commit=False
    )
    consumer.assign(list(partitions))
    try:
        await consumer.start()
        acknowledged = {tp: await asyncio.wait_for(consumer.committed(tp), _ANSWER_S) or 0 for tp in partitions}
        # Only now: looked up before, PostgreSQL could be overtaken by workers that run.
        async with database.session() as session:
            applied = await applied_positions(session, group)
        first = await consumer.beginning_offsets(list(partitions))
        deleted = deleted_unread({place: first[tp] for tp, place in partitions.items()}, applied)
        if deleted:
            batch_logger(worker).error(
                "records are lost", action="retention", records=deleted, cause="their topic deleted them unread"
            )
        behind = {
            tp: applied.get(place, 0) for tp, place in partitions.items() if applied.get(place, 0) < acknowledged[tp]
        }
        if behind:
            await consumer.commit(behind)
            lost = sum(acknowledged[tp] - position for tp, position in behind.items())
            batch_logger(worker).warning(
                "positions set back", action="rewind", records=lost, cause="PostgreSQL was restored from a backup"
            )
    except _OTHERS_RUN as error:
        raise PositionsAhead(
            f"Kafka's positions of {group} are ahead of PostgreSQL, which was restored from a backup while workers run;"
            " stop all workers, then start them"
        ) from error
    except (KafkaError, OSError) as error:
        raise kafka_down(connection.bootstrap_servers, error) from error
    finally:
        await consumer.stop()
