"""Faust's Kafka driver, changed where its promises are weaker than ours (each trap has a test).

- One fetch becomes one Faust message: its machinery costs 60 microseconds a message, a fetch has hundreds of records.
- Only positions that the worker named (`finish`) are committed. What Faust takes for acknowledged (an exception in an
  agent, a cancelled iteration, a message it skipped) commits nothing.
- A fetch is handed on when the one before is finished: batches are as large as the backlog, nothing waits in buffers.
- The inputs are not fetched before a rebalance is over; Faust may drop what it has fetched already.
- A commit that fails is tried again; Faust would stop the worker.
- Topics with equal partition counts are assigned together, whatever order a set of members happens to have.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import cast

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import IllegalStateError, KafkaError
from aiokafka.structs import ConsumerRecord
from faust.assignor.partition_assignor import PartitionAssignor
from faust.tables.manager import TableManager
from faust.transport.consumer import RecordMap
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage, Message

from schemas.errors import DependencyDown
from topics.away import kafka_down
from topics.connection import FETCH_WAIT_MS
from workers.runtime.membership import trouble_of

#: How soon the inputs are looked at again while a rebalance comes to its end.
_REBALANCE_PAUSE_S = 0.02

Records = Sequence["ConsumerRecord[bytes | None, bytes | None]"]


class Fetch(ConsumerMessage):
    """What one fetch brought. Its `tp` and `offset` are those of one partition among several: Faust's books only."""

    def __init__(self, records: Mapping[TP, Records], log_ends: Mapping[TP, int], generation_id: int) -> None:
        tp, first = next(iter(records.items()))
        super().__init__(
            tp.topic, tp.partition, first[-1].offset, 0.0, 0, None, None, b"", None, tp=tp, generation_id=generation_id
        )
        self.by_partition = records
        #: The offset after the newest record of each partition's log.
        self.log_ends = log_ends
        self.finished = asyncio.Event()

    @property
    def records(self) -> Iterable["ConsumerRecord[bytes | None, bytes | None]"]:
        """All records, each partition's in order."""
        for records in self.by_partition.values():
            yield from records

    @property
    def positions(self) -> Mapping[TP, int]:
        """For each partition the offset after its last record here."""
        return {tp: records[-1].offset + 1 for tp, records in self.by_partition.items()}


class ConsumerThread(driver.AIOKafkaConsumerThread):
    """The consumer's own thread: heartbeats go on whatever a batch does."""

    #: Leaving the group takes milliseconds, or for ever when the broker is away; a stop must not wait for that.
    shutdown_timeout = 10.0

    @property
    def trouble(self) -> str:
        """What keeps the consumer from reading all its topics."""
        return "not connected" if self._consumer is None else trouble_of(self._consumer)

    def _create_worker_consumer(self, transport: driver.Transport) -> AIOKafkaConsumer:
        """Ask as often as our other readers do: Faust waits up to 1.5 s, which the embedded broker makes use of."""
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS  # noqa: SLF001
        return consumer

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Seek the inputs to their committed positions, and to the beginning where nothing was committed yet.

        aiokafka leaves the latter where they are, which is after what was fetched and not handed on: those records
        would never be read.
        """
        committed: Mapping[TP, int] = await super().seek_to_committed()
        is_changelog = cast("FetchConsumer", self.consumer)._is_changelog_tp  # noqa: SLF001
        unread = [
            driver.ensure_aiokafka_TP(tp) for tp, offset in committed.items() if not offset and not is_changelog(tp)
        ]
        if unread:
            await self.call_thread(self._ensure_consumer().seek_to_beginning, *unread)
        return committed

    async def getmany(
        self,
        active_partitions: set[TP] | None,
        timeout: float,  # noqa: ASYNC109 - Faust's signature
    ) -> RecordMap:
        """Fetch as many records as a batch may have; in a recovery, when only changelogs are read, all there are."""
        consumer = self._ensure_consumer()
        is_changelog = cast("FetchConsumer", self.consumer)._is_changelog_tp  # noqa: SLF001
        if self.app.rebalancing and active_partitions is not None:
            # Faust resumes the inputs before it clears its queues for the last time: a fetch that came in between
            # would be gone, and the next one waits for its end for ever.
            active_partitions = {tp for tp in active_partitions if is_changelog(tp)}
            if not active_partitions:
                await asyncio.sleep(_REBALANCE_PAUSE_S)
                return {}
        recovers = active_partitions is not None and all(is_changelog(tp) for tp in active_partitions)
        fetched: RecordMap = await self.call_thread(
            self._fetch_records,
            consumer,
            active_partitions,
            timeout=timeout,
            max_records=None if recovers else consumer._max_poll_records,  # noqa: SLF001
        )
        return fetched

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        consumer = self._ensure_consumer()
        try:
            await consumer.commit({driver.ensure_aiokafka_TP(tp): offset for tp, offset in offsets.items()})
        except (KafkaError, IllegalStateError) as error:
            # Rebalanced: the new owner replays. Broker away: the next interval tries again.
            cast("FetchConsumer", self.consumer).commit_failed(error)
            return False
        return True


class FetchConsumer(driver.Consumer):
    """A consumer that hands on fetches and commits what was finished."""

    def __post_init__(self) -> None:
        self.finished_positions: dict[TP, int] = {}
        self._handed: Fetch | None = None

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    @property
    def trouble(self) -> str:
        """What keeps the worker from reading all its topics; empty where nothing does."""
        return cast("ConsumerThread", self._thread).trouble

    def finish(self, fetch: Fetch) -> None:
        """Let the positions of `fetch` be committed: all that it causes is stored, published and acknowledged."""
        self.note_finished(fetch.positions)
        fetch.finished.set()

    def note_finished(self, positions: Mapping[TP, int]) -> None:
        """Let positions be committed: all that comes before them is stored, published and acknowledged."""
        self.finished_positions.update(positions)

    def commit_failed(self, error: Exception) -> None:
        """Note a failed commit of positions."""
        self.log.warning("Positions were not committed, the next interval tries again: %r", error)

    # -- fetching

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, Message]]:  # noqa: ASYNC109 - Faust's signature
        """Fetch once: one message for all input records, one per partition for changelog records."""
        if not await self._handed_is_finished():
            return
        generation_id = self.app.consumer_generation_id
        records, _ = await self._wait_next_records(timeout)
        if not records or self.should_stop:
            return
        if not self.flow_active or self.app.consumer_generation_id != generation_id:
            await self._seek_back(records)
            return
        inputs: dict[TP, Records] = {}
        for partition, found in records.items():
            tp = TP(partition.topic, partition.partition)
            if self._is_changelog_tp(tp):
                yield tp, Fetch({tp: found}, {}, generation_id)
            else:
                inputs[tp] = found
        if inputs:
            log_ends = {tp: end for tp in inputs if (end := self.highwater(tp))}
            self._handed = Fetch(inputs, log_ends, generation_id)
            yield self._handed.tp, self._handed

    async def _handed_is_finished(self) -> bool:
        """Wait for the fetch before. A rebalance in between forgets it: all positions are then sought anew."""
        if self._handed is None:
            return True
        if self.flow_active:
            await self.wait_first(self._handed.finished.wait(), self.suspend_flow.wait())
        finished = self._handed.finished.is_set()
        if finished or not self.flow_active:
            self._handed = None
        return finished

    async def _seek_back(self, dropped: RecordMap) -> None:
        """Let what was fetched and is not handed on be read again: inputs from the committed positions.

        A changelog has none. A recovery that began meanwhile sought its place before this fetch took the records: it
        would wait for them for ever.
        """
        applied = cast("TableManager", self.app.tables).recovery.active_offsets
        try:
            await self.perform_seek()
            for tp in (TP(partition.topic, partition.partition) for partition in dropped):
                if self._is_changelog_tp(tp) and tp in self.assignment():
                    await self.seek(tp, max(0, applied.get(tp) or 0))
        except (KafkaError, IllegalStateError) as error:
            # The rebalance that is under way ends with these seeks too.
            self.log.warning("Seeking to the committed positions failed: %r", error)

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        """Keep no list of missing offsets: positions are named, not derived from acknowledgements."""

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Skip Faust's check of each partition's messages: a fetch counts for one of them only."""

    # -- committing

    def _filter_committable_offsets(self, tps: Iterable[TP]) -> dict[TP, int]:  # noqa: ARG002
        self._acked.clear()
        self._acked_index.clear()
        return {tp: offset for tp, offset in self.finished_positions.items() if self._should_commit(tp, offset)}

    async def _commit_offsets(self, offsets: Mapping[TP, int], start_new_transaction: bool = True) -> bool:  # noqa: ARG002, FBT001, FBT002
        assignment = self.assignment()
        mine = {tp: offset for tp, offset in offsets.items() if tp in assignment}
        if not mine or not await self._commit(mine):
            return False
        self._committed_offset.update(mine)
        return True

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Finish the batch at hand and commit its positions, then forget the partitions."""
        await super().on_partitions_revoked(revoked)
        for tp in revoked:
            self.finished_positions.pop(tp, None)


class Transport(driver.Transport):
    """The driver with our consumer."""

    Consumer = FetchConsumer


class Assignor(PartitionAssignor):
    """Faust's assignor, which groups topics by the order of a set of members; equal sets may differ in it."""

    @classmethod
    def _group_co_subscribed(cls, topics: set[str], subscriptions: Mapping[str, Iterable[str]]) -> Iterable[set[str]]:
        members: defaultdict[str, set[str]] = defaultdict(set)
        for member, subscribed in subscriptions.items():
            for topic in subscribed:
                members[topic].add(member)
        groups: defaultdict[frozenset[str], set[str]] = defaultdict(set)
        for topic in topics:
            groups[frozenset(members[topic])].add(topic)
        return groups.values()


def broker_error(error: BaseException | None, servers: str) -> DependencyDown | None:
    """Return what `error` means if Kafka is what failed."""
    if isinstance(error, (KafkaError, OSError, asyncio.TimeoutError)):
        return kafka_down(servers, error)
    return None
