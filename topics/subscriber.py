"""Kafka -> typed events: one topic or several, from the beginning, the end or a moment, with or without a group."""

from collections import deque
from collections.abc import AsyncIterator, Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Literal, Self, TypeAlias

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import CommitFailedError, KafkaError, UnknownTopicOrPartitionError
from aiokafka.structs import OffsetAndTimestamp

from schemas.data import Data
from schemas.envelope import Event
from schemas.errors import DependencyDown, Rejection, UsageError
from schemas.registry import parse
from topics.away import kafka_down
from topics.catalog import Topic
from topics.codec import decode
from topics.connection import FETCH_WAIT_MS, KafkaConnection
from topics.log_ends import log_ends
from topics.reach import why_down
from topics.records import ReceivedRecord

#: Where a subscription begins: with what was published first, with what comes from now on, with the first record of
#: a moment (aware of its time zone), or with so many of the newest records of each partition.
Start: TypeAlias = Literal["beginning", "end"] | datetime | int
_POLL_MS = 500
_MAX_POLL_RECORDS = 1000
_REQUEST_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class Received:
    """One record and what it says: an event, or nothing (a tombstone), or bytes that no event can be read from."""

    record: ReceivedRecord
    event: Event | None
    rejection: Rejection | None = None

    @property
    def data(self) -> Data:
        """Return the typed data. Raises `Rejection` where there is none."""
        if self.event is None:
            raise self.rejection or Rejection("malformed", "the record is a tombstone and holds no event")
        return parse(self.event)


def receive(record: ReceivedRecord) -> Received:
    """Decode a record; what cannot be decoded says why instead of raising."""
    if record.value is None:
        return Received(record, None)
    try:
        return Received(record, decode(record.value, record.headers))
    except Rejection as rejection:
        return Received(record, None, rejection)


class Subscriber:
    """An async iterator over topics, for as long as its `async with` block lasts.

    Without a group every subscriber sees everything from `start` on. With a group its members share the
    partitions, `start` only counts where the group has no position yet, and a record counts as read once
    the loop asks for the one after it (so it comes again after a crash: at least once).
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topics: Sequence[Topic],
        *,
        start: Start = "end",
        group: str | None = None,
        partitions: Mapping[Topic, Sequence[int]] | None = None,
        keys: Container[bytes | None] | None = None,
        client_id: str = "tally-subscriber",
    ) -> None:
        """With `partitions` only those are read (and `group` is None); with `keys` other records are passed over."""
        assert group is None or partitions is None, "a group shares all partitions"
        self._connection = connection
        self._start = start
        self._group = group
        self._partitions = partitions
        self._topics = topics
        self._keys = keys
        self._pending: deque[Received] = deque()
        self._given: Received | None = None
        self._read: dict[TopicPartition, int] = {}
        self._done: dict[TopicPartition, int] = {}
        self._end: dict[TopicPartition, int] = {}
        self._consumer = AIOKafkaConsumer(
            **connection.client_options(client_id),
            group_id=None if group is None else f"{connection.prefix}{group}",
            auto_offset_reset="earliest" if start == "beginning" else "latest",
            enable_auto_commit=False,
            max_poll_records=_MAX_POLL_RECORDS,
            fetch_max_wait_ms=FETCH_WAIT_MS,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
        )

    async def __aenter__(self) -> Self:
        """Connect and fix the starting place: what is published from here on will be seen.

        Raises `DependencyDown`, and `UsageError` where a topic does not exist.
        """
        try:
            if self._partitions is None:
                self._consumer.subscribe([self._connection.wire_name(topic) for topic in self._topics])
            else:
                self._consumer.assign(
                    [
                        TopicPartition(self._connection.wire_name(topic), partition)
                        for topic, partitions in self._partitions.items()
                        for partition in partitions
                    ]
                )
            await self._consumer.start()
            if self._group is None:
                await self._seek()
        except UnknownTopicOrPartitionError as error:
            await self._consumer.stop()
            names = ", ".join(self._connection.wire_name(topic) for topic in self._topics)
            raise UsageError(f"not all of {names} exist; run `tally topics create`") from error
        except (KafkaError, OSError) as error:
            await self._consumer.stop()
            raise await why_down(self._connection, error) from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._commit()
        finally:
            await self._consumer.stop()

    async def __aiter__(self) -> AsyncIterator[Received]:
        """Yield records as they come, without an end. A loop that is left goes on where it was in the next one."""
        while True:
            self._count_as_read()
            while self._pending:
                self._given = self._pending.popleft()
                yield self._given
                self._count_as_read()
            await self._commit()
            await self._poll()

    async def until_end(self) -> AsyncIterator[Received]:
        """Yield what was published before the subscription began, then stop. Not for groups."""
        assert self._group is None, "a group's end moves with its members"
        while True:
            while self._pending:
                yield self._pending.popleft()
            if all(self._read.get(partition, 0) >= end for partition, end in self._end.items()):
                return
            await self._poll()

    async def _seek(self) -> None:
        partitions = list(self._consumer.assignment())
        self._end = await log_ends(self._consumer, partitions)
        match self._start:
            case "end":
                offsets = self._end
            case "beginning":
                offsets = dict(await self._consumer.beginning_offsets(partitions))
            case int():
                first = await self._consumer.beginning_offsets(partitions)
                offsets = {partition: max(first[partition], end - self._start) for partition, end in self._end.items()}
            case datetime():
                milliseconds = int(self._start.timestamp() * 1000)
                found = await self._consumer.offsets_for_times(dict.fromkeys(partitions, milliseconds))
                offsets = {partition: _offset(found.get(partition), end) for partition, end in self._end.items()}
        for partition, offset in offsets.items():
            self._consumer.seek(partition, offset)
            self._read[partition] = offset

    async def _poll(self) -> None:
        try:
            batches = await self._consumer.getmany(timeout_ms=_POLL_MS)
        except (KafkaError, OSError) as error:
            raise self._down(error) from error
        self._pending.extend(
            receive(self._record(record))
            for records in batches.values()
            for record in records
            if self._keys is None or record.key in self._keys
        )
        if self._group is None:
            for partition in self._consumer.assignment():
                # The position, not the last record: transaction markers of other producers leave gaps.
                self._read[partition] = await self._consumer.position(partition)

    def _count_as_read(self) -> None:
        """Note that the next record is asked for, in this loop or, after a break, in another."""
        if self._group is not None and self._given is not None:
            record = self._given.record
            self._done[TopicPartition(self._connection.wire_name(record.topic), record.partition)] = record.offset + 1
        self._given = None

    async def _commit(self) -> None:
        held = self._consumer.assignment() if self._done else frozenset()
        offsets = {partition: offset for partition, offset in self._done.items() if partition in held}
        self._done.clear()
        if not offsets:
            return
        try:
            await self._consumer.commit(offsets)
        except CommitFailedError:
            # The group moved the partitions to another member, which reads these records again.
            return
        except (KafkaError, OSError) as error:
            raise self._down(error) from error

    def _record(self, record: "ConsumerRecord[bytes, bytes]") -> ReceivedRecord:
        return ReceivedRecord(
            topic=self._connection.logical(record.topic),
            partition=record.partition,
            offset=record.offset,
            key=record.key,
            value=record.value,
            headers=record.headers,
            timestamp_ms=record.timestamp,
        )

    def _down(self, error: BaseException) -> DependencyDown:
        return kafka_down(self._connection.bootstrap_servers, error)


def _offset(found: OffsetAndTimestamp | None, end: int) -> int:
    """Return where a moment begins; some brokers say "nothing that late" by the timestamp -1."""
    return end if found is None or found.timestamp < 0 else int(found.offset)
