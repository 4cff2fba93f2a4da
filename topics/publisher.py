"""Records -> Kafka, acknowledged: batches are packed per partition, order per partition is kept."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from schemas.errors import DependencyDown, Rejection
from topics.away import kafka_down
from topics.catalog import MAX_MESSAGE_BYTES, Topic
from topics.connection import KafkaConnection
from topics.keys import partition_of
from topics.reach import why_down
from topics.records import Headers, Record

_ACK_TIMEOUT_S = 60.0
#: One packed batch: large enough to be cheap, small enough that every broker takes it.
_BATCH_BYTES = 512 * 1024


class TopicTooNarrow(DependencyDown):
    """A topic refuses records that are within our limits: it was configured otherwise than the catalog says."""

    def __init__(self, servers: str, topic: str, cause: str) -> None:
        super().__init__("Kafka", servers, cause)
        refused = f"Kafka at {servers} refuses a record for {topic} as too large ({cause})"
        self.args = (f"{refused}; set max.message.bytes={MAX_MESSAGE_BYTES} on that topic",)


class PartitionMissing(DependencyDown):
    """A topic has fewer partitions than those that go together with it."""

    def __init__(self, servers: str, topic: str, partition: int) -> None:
        super().__init__("Kafka", servers, "")
        self.args = (f"Kafka at {servers} has no partition {partition} of {topic}; see `tally topics check`",)


class Publisher:
    """A producer that packs. `publish` returns when every record is acknowledged by all in-sync replicas."""

    def __init__(self, connection: KafkaConnection, client_id: str, *, within_limits: bool = False) -> None:
        """Describe a producer; `within_limits` is said by workers: what they send, every topic of the catalog takes."""
        self._connection = connection
        self._within_limits = within_limits
        self._producer = AIOKafkaProducer(
            **connection.client_options(client_id),
            acks="all",
            max_batch_size=_BATCH_BYTES,
            request_timeout_ms=30_000,
        )

    async def start(self) -> None:
        """Connect. Raises `DependencyDown`."""
        try:
            await self._producer.start()
        except (KafkaError, OSError) as error:
            await self._producer.stop()
            raise await why_down(self._connection, error) from error

    async def stop(self) -> None:
        """Disconnect."""
        await self._producer.stop()

    async def partitions(self, topic: Topic, seen: int = 0) -> int:
        """Return the partition count of `topic`, as of half a minute ago; as of now where `seen` is a higher partition.

        Raises `DependencyDown` when the broker does not know it.
        """
        # Not kept: partitions may be added, and the client hears of them.
        count = await self._known_partitions(topic)
        if seen < count:
            return count
        await self._producer.client.force_metadata_update()
        return await self._known_partitions(topic)

    async def _known_partitions(self, topic: Topic) -> int:
        try:
            found = await asyncio.wait_for(
                self._producer.partitions_for(self._connection.wire_name(topic)), _ACK_TIMEOUT_S
            )
        except (KafkaError, TimeoutError) as error:
            raise kafka_down(self._connection.bootstrap_servers, error) from error
        return len(found)

    async def publish(self, records: Iterable[Record]) -> dict[tuple[str, int], int]:
        """Send and wait for all acknowledgements; return the offset of the last record in each topic and partition.

        Raises `DependencyDown`; sending again is then safe, ids repeat. Raises `Rejection` (`too_large`), where
        records may be larger than our limits.
        """
        lanes = await self._lanes(records)
        sends = [self._send_lane(topic, partition, lane) for (topic, partition), lane in lanes.items()]
        try:
            async with asyncio.timeout(_ACK_TIMEOUT_S):
                results = await asyncio.gather(*sends, return_exceptions=True)
        except TimeoutError as error:
            raise DependencyDown("Kafka", self._connection.bootstrap_servers, "no acknowledgement") from error
        offsets: dict[tuple[str, int], int] = {}
        for lane, result in zip(lanes, results, strict=True):
            if isinstance(result, MessageSizeTooLargeError):
                if self._within_limits:
                    raise TopicTooNarrow(self._connection.bootstrap_servers, lane[0], str(result)) from result
                # No outage: trying again would never end.
                raise Rejection(
                    "too_large", f"a record for {lane[0]} is larger than the broker takes: {result}"
                ) from result
            if isinstance(result, (KafkaError, OSError)):
                raise kafka_down(self._connection.bootstrap_servers, result) from result
            if isinstance(result, BaseException):
                raise result
            offsets[lane] = result
        return offsets

    async def _lanes(self, records: Iterable[Record]) -> Mapping[tuple[str, int], list[Record]]:
        lanes: defaultdict[tuple[Topic, int], list[Record]] = defaultdict(list)
        counts: dict[Topic, int] = {}
        for record in records:
            topic, partition = record.topic, record.partition
            count = counts.get(topic)
            if count is None or (partition is not None and partition >= count):
                count = counts[topic] = await self.partitions(topic, partition or 0)
            if partition is None:
                partition = partition_of(record.key or b"", count)
            elif partition >= count:
                raise PartitionMissing(self._connection.bootstrap_servers, self._connection.wire_name(topic), partition)
            lanes[topic, partition].append(record)
        return {(self._connection.wire_name(topic), partition): lane for (topic, partition), lane in lanes.items()}

    async def _send_lane(self, topic: str, partition: int, lane: list[Record]) -> int:
        """Send one partition's records in order, each packed batch after the one before; return the last offset."""
        acknowledgements: list[asyncio.Future[Any]] = []
        batch = self._producer.create_batch()
        named: list[tuple[str, bytes]] = []
        given: Headers = named
        for record in lane:
            if record.headers is not given:
                # The producer takes lists only; most records share theirs.
                named, given = list(record.headers), record.headers
            if batch.append(key=record.key, value=record.value, timestamp=None, headers=named) is None:
                acknowledgements.append(await self._send_batch(batch, topic, partition))
                batch = self._producer.create_batch()
                appended = batch.append(key=record.key, value=record.value, timestamp=None, headers=named)
                assert appended is not None, "an empty batch takes a record of any size"
        last: int = batch.record_count() - 1
        acknowledgements.append(await self._send_batch(batch, topic, partition))
        # A batch is acknowledged with the offset of its first record.
        acknowledged = await asyncio.gather(*acknowledgements)
        first: int = acknowledged[-1].offset
        return first + last

    async def _send_batch(self, batch: Any, topic: str, partition: int) -> "asyncio.Future[Any]":
        batch.close()
        sent: asyncio.Future[Any] = await self._producer.send_batch(batch, topic, partition=partition)
        return sent
