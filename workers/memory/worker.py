"""memory-commands -> memory-results, memory-conflicts, memory-changes, dead-letters: the worker's life."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from time import monotonic

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import IllegalStateError, KafkaError

from schemas.errors import UsageError
from topics.away import kafka_down
from topics.catalog import Topic
from topics.connection import FETCH_WAIT_MS
from topics.groups import extents
from topics.publisher import Publisher
from workers.logic.memory.commands import Rules
from workers.memory.batch import MemoryBatches
from workers.memory.compose import Committed
from workers.memory.intake import WORKER, Intake
from workers.memory.publication import Publication
from workers.memory.reading import Batch, InFlight, Reader
from workers.memory.sweep import Sweep
from workers.runtime import crash_points, membership
from workers.runtime.crash_points import pass_point
from workers.runtime.failures import crash
from workers.runtime.health import Health, serve
from workers.runtime.logs import batch_logger
from workers.runtime.membership import Membership, trouble_of
from workers.runtime.migrations import missing_migrations
from workers.runtime.plugins import load_types
from workers.runtime.postgres import BY_KEY, Database
from workers.runtime.retry import Stopping, retry
from workers.runtime.rewind import rewind
from workers.settings import Settings

_HEARTBEATS_PER_SESSION = 3
#: Longer than any outage that a batch waits out in place should last before others take its partitions.
_MAX_POLL_INTERVAL_MS = 30 * 60 * 1000
_FETCH_BYTES_PER_PARTITION = 5 * 1024 * 1024
_PUBLISHED_TO = (Topic.MEMORY_RESULTS, Topic.MEMORY_CONFLICTS, Topic.MEMORY_CHANGES, Topic.DEAD_LETTERS)


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Work until `stop` is set. Dependencies that are down are waited for; a bug ends the process.

    Raises `UsageError` for a plug-in that cannot be used, a schema that lacks migrations, or a port that is taken.
    """
    crash_points.configure(settings.crash_at)
    health = Health(WORKER, ("kafka", "postgres", membership.CHECK))
    rules = Rules(types=load_types())
    async with AsyncExitStack() as resources:
        port = await resources.enter_async_context(serve(health, settings.health_host, settings.health_port))
        batch_logger(WORKER).info("worker starts", action="start", health_port=port)
        try:
            database = await _open_database(resources, settings, health, stop)
            publisher = await _start_publisher(resources, settings, health, stop)
            restored = partial(
                rewind,
                settings.kafka(),
                publisher,
                database,
                worker=WORKER,
                group=group_of(settings),
                topics=[Topic.MEMORY_COMMANDS],
            )
            await retry(restored, name="kafka", health=health, stop=stop)
            worker = MemoryWorker(settings, database, publisher, rules, health=health, stop=stop)
            await worker.work()
        except Stopping as stopping:
            batch_logger(WORKER).info("stopped while waiting", action="stop", cause=str(stopping))


def group_of(settings: Settings) -> str:
    """Return the consumer group."""
    return f"{settings.topic_prefix}{WORKER}"


async def _open_database(
    resources: AsyncExitStack, settings: Settings, health: Health, stop: asyncio.Event
) -> Database:
    database = Database.from_settings(settings, "tally-memory", BY_KEY)
    await retry(database.open, name="postgres", health=health, stop=stop)
    resources.push_async_callback(database.close)

    async def missing() -> list[str]:
        async with database.session() as connection:
            return await missing_migrations(connection)

    names = await retry(missing, name="postgres", health=health, stop=stop)
    if names:
        raise UsageError(f"the database lacks {', '.join(names)}; run `tally migrate`")
    return database


async def _start_publisher(
    resources: AsyncExitStack, settings: Settings, health: Health, stop: asyncio.Event
) -> Publisher:
    async def start() -> Publisher:
        publisher = Publisher(settings.kafka(), "tally-memory", within_limits=True)
        await publisher.start()
        try:
            for topic in _PUBLISHED_TO:
                await publisher.partitions(topic)
        except BaseException:
            await publisher.stop()
            raise
        return publisher

    publisher = await retry(start, name="kafka", health=health, stop=stop)
    resources.push_async_callback(publisher.stop)
    return publisher


class MemoryWorker:
    """One member of the consumer group: polls, applies, publishes, acknowledges; and sweeps."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        publisher: Publisher,
        rules: Rules,
        *,
        health: Health,
        stop: asyncio.Event,
    ) -> None:
        self._settings = settings
        self._connection = settings.kafka()
        self._rules = rules
        self._health = health
        self._metrics = health.metrics
        self._stop = stop
        self._log = batch_logger(WORKER)
        retention = timedelta(days=settings.outcome_retention_days)
        group = group_of(settings)
        self._group = group
        self._batches = MemoryBatches(
            database, rules, group=group, outcome_retention=retention, log_ends=self._log_ends
        )
        self._publication = Publication(database, publisher, health=health, stop=stop)
        self._sweep = Sweep(database, self._publication, health=health, stop=stop, outcome_retention=retention)
        #: Positions whose every consequence is acknowledged, not yet told to Kafka.
        self._finished: dict[TopicPartition, int] = {}
        self._in_flight = InFlight()
        self._membership = Membership(health)

    async def work(self) -> None:
        """Work until stopped. A failure that is nobody's outage ends the process."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._guarded(self._sweep.run(self._settings.purge_interval_s), "sweep"))
            tasks.create_task(self._guarded(self._consume(), "batch"))
            tasks.create_task(self._membership.watch(self._stop))

    async def _guarded(self, work: Coroutine[object, object, None], during: str) -> None:
        try:
            await work
        except Stopping as stopping:
            self._log.info("stopped while waiting", action="stop", during=during, cause=str(stopping))
        except Exception as error:  # noqa: BLE001 - one of the failure points: a bug must not be acknowledged
            crash(error, worker=WORKER, during=during)

    async def _consume(self) -> None:
        """Read one batch, commit the one before it, publish the one before that, and acknowledge one before those.

        All at once and each in its turn: what waits for Kafka does not wait for disks, and PostgreSQL works while the
        next batch is understood.
        """
        last: Finishing | None = None
        async with self._consumer() as (consumer, rebalances):
            reader = self._reader(consumer)
            try:
                while not self._stop.is_set():
                    batch = await reader.next()
                    rebalances.raise_failure()
                    if batch is None:
                        if last is not None and last.finished.done():
                            await last.finished
                            last = None
                        if last is None:
                            await self._acknowledge(consumer)
                        continue
                    await reader.top_up(batch)
                    committed = await self._apply(batch, reader.read_on)
                    pass_point("after_commit")
                    if committed.replayed:
                        pass_point("in_recovery")
                    last = await self._finish(consumer, batch, committed, last)
            finally:
                try:
                    if last is not None:
                        await last.finished
                    await self._acknowledge(consumer)
                finally:
                    await reader.drop()

    async def _log_ends(self) -> Mapping[int, int]:
        found = await extents(self._connection, [Topic.MEMORY_COMMANDS])
        return {partition: end for (_, partition), (_, end) in found.items()}

    def _reader(self, consumer: AIOKafkaConsumer) -> Reader:
        return Reader(
            consumer,
            self._rules,
            self._in_flight,
            self._batches.decide_ahead,
            batch_size=self._settings.batch_size,
            servers=self._connection.bootstrap_servers,
            health=self._health,
            stop=self._stop,
        )

    @asynccontextmanager
    async def _consumer(self) -> AsyncIterator[tuple[AIOKafkaConsumer, "Rebalances"]]:
        """Join the group; leave it at the end."""
        session_ms = int(self._settings.kafka_session_timeout_s * 1000)

        async def start() -> tuple[AIOKafkaConsumer, Rebalances]:
            consumer = AIOKafkaConsumer(
                **self._connection.client_options("tally-memory"),
                group_id=self._group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                max_poll_records=self._settings.batch_size,
                max_partition_fetch_bytes=_FETCH_BYTES_PER_PARTITION,
                fetch_max_wait_ms=FETCH_WAIT_MS,
                session_timeout_ms=session_ms,
                heartbeat_interval_ms=session_ms // _HEARTBEATS_PER_SESSION,
                max_poll_interval_ms=_MAX_POLL_INTERVAL_MS,
            )
            rebalances = Rebalances(
                self._batches, self._in_flight, consumer, self._membership, drain_s=session_ms / 2000
            )
            consumer.subscribe([self._connection.wire_name(Topic.MEMORY_COMMANDS)], listener=rebalances)
            try:
                await consumer.start()
            except (KafkaError, OSError) as error:
                await consumer.stop()
                raise kafka_down(self._connection.bootstrap_servers, error) from error
            return consumer, rebalances

        consumer, rebalances = await retry(start, name="kafka", health=self._health, stop=self._stop)
        try:
            yield consumer, rebalances
        finally:
            await consumer.stop()

    async def _apply(self, batch: Batch, on_decided: Callable[[], None]) -> Committed:
        async def apply() -> Committed:
            ahead, batch.decided = batch.decided, None
            return await self._batches.apply(batch.intake, batch.log_ends, ahead=ahead, on_decided=on_decided)

        return await retry(
            apply,
            name="postgres",
            health=self._health,
            stop=self._stop,
        )

    async def _finish(
        self, consumer: AIOKafkaConsumer, batch: Batch, committed: Committed, before: "Finishing | None"
    ) -> "Finishing":
        """Begin to publish what a batch committed, as soon as what the one `before` it committed is published."""
        if before is not None:
            before.leave_to(committed)
            await before.published
        published = asyncio.create_task(self._publish(committed, before))
        finished = asyncio.create_task(self._settle(consumer, batch, committed, published))
        return Finishing(committed, published, finished)

    async def _publish(self, committed: Committed, before: "Finishing | None") -> None:
        """Publish, wait for the acknowledgements, and for the batch before: input is acknowledged in order."""
        letters = [letter.record for letter in committed.letters]
        await self._publication.publish([*committed.outgoing, *letters])
        pass_point("after_publish")
        if before is not None:
            await before.finished

    async def _settle(
        self, consumer: AIOKafkaConsumer, batch: Batch, committed: Committed, published: asyncio.Task[None]
    ) -> None:
        """Look after the newest states once a batch is published, then acknowledge its input."""
        await published
        await self._publication.settle(committed.changed.values())
        self._finished.update(batch.positions)
        await self._acknowledge(consumer)
        self._in_flight.end()
        self._account(batch.intake, committed, monotonic() - batch.started)

    async def _acknowledge(self, consumer: AIOKafkaConsumer) -> None:
        """Commit finished positions. Where Kafka refuses, the next time tries again, or the next owner replays."""
        if not self._finished:
            return
        assigned = consumer.assignment()
        positions = {tp: offset for tp, offset in self._finished.items() if tp in assigned}
        self._finished = {}
        if not positions:
            return
        try:
            await consumer.commit(positions)
        except (KafkaError, IllegalStateError) as error:
            self._finished = {**positions, **self._finished}
            self._log.info("positions not committed", action="commit", cause=str(error) or type(error).__name__)

    def _account(self, intake: Intake, committed: Committed, seconds: float) -> None:
        events = self._metrics.events
        events.labels(WORKER, "applied").inc(committed.applied)
        events.labels(WORKER, "replayed").inc(committed.replayed)
        events.labels(WORKER, "rejected").inc(len(committed.letters))
        for letter in committed.letters:
            self._metrics.dead_letters.labels(WORKER, letter.code).inc()
        for conflict in committed.conflicts:
            self._metrics.conflicts.labels(str(conflict["kind"])).inc()
        self._metrics.batches.labels(WORKER).inc()
        self._metrics.batch_seconds.labels(WORKER).observe(seconds)
        self._metrics.batch_events.labels(WORKER).observe(intake.records)
        self._log.info(
            "batch",
            action="batch",
            records=intake.records,
            applied=committed.applied,
            replayed=committed.replayed,
            dead_letters=len(committed.letters),
            conflicts=len(committed.conflicts),
            positions=intake.positions,
            ms=round(seconds * 1000, 1),
        )


@dataclass(frozen=True, slots=True)
class Finishing:
    """A committed batch on its way. What fails in one fails in all that come after it: none is acknowledged."""

    committed: Committed
    published: asyncio.Task[None]
    finished: asyncio.Task[None]

    def leave_to(self, following: Committed) -> None:
        """Leave items that the following batch changed to that one: it shows a newer state, and looks after it."""
        for address in following.changed:
            self.committed.changed.pop(address, None)


class Rebalances(ConsumerRebalanceListener):  # type: ignore[misc] # aiokafka has no types
    """What happens when partitions move. aiokafka logs and drops what a listener raises: this one keeps it."""

    def __init__(
        self,
        batches: MemoryBatches,
        in_flight: InFlight,
        consumer: AIOKafkaConsumer,
        membership: Membership,
        *,
        drain_s: float,
    ) -> None:
        self._batches = batches
        self._in_flight = in_flight
        self._consumer = consumer
        self._membership = membership
        self._drain_s = drain_s
        self._failure: BaseException | None = None

    def raise_failure(self) -> None:
        """Raise in the main loop what a rebalance could not do."""
        if self._failure is not None:
            raise self._failure

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Let the batch at hand be acknowledged, if it can be soon: the next owner then has nothing to replay."""
        pass_point("in_rebalance")
        self._membership.left()
        self._in_flight.draining = True
        try:
            async with asyncio.timeout(self._drain_s):
                await self._in_flight.idle.wait()
        except TimeoutError:
            batch_logger(WORKER).info("partitions leave in mid-batch", action="revoke", partitions=len(revoked))
        except BaseException as error:
            self._failure = error
            raise

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Look everything up again: others may have worked on it meanwhile."""
        pass_point("in_rebalance")
        self._membership.joined(lambda: trouble_of(self._consumer))
        self._in_flight.draining = False
        try:
            self._batches.forget(tp.partition for tp in assigned)
        except BaseException as error:
            self._failure = error
            raise
