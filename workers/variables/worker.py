"""The variable worker: execution-events, activity-outputs, memory-results -> variable stores and their answers."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import cast

from faust.types import TP

from topics.connection import KafkaConnection
from topics.groups import extents
from topics.publisher import Publisher
from topics.records import ReceivedRecord
from workers.logic.memory.commands import Rules
from workers.runtime import crash_points, failures, membership
from workers.runtime.health import Health, serve
from workers.runtime.logs import batch_logger
from workers.runtime.membership import Membership
from workers.runtime.plugins import load_types
from workers.runtime.postgres import BY_KEY, Database
from workers.runtime.retry import Stopping, retry
from workers.runtime.rewind import rewind
from workers.settings import Settings
from workers.variables.application import VariablesApp, build_app, group_of, register
from workers.variables.batch import BatchProcessor
from workers.variables.driver import Fetch, FetchConsumer, broker_error
from workers.variables.reading import INPUTS
from workers.variables.retention import delete_finished, delete_refusals
from workers.variables.store import Lane

WORKER = "variables"
_CHECKS = ("kafka", "postgres", membership.CHECK)
#: How often ended executions are looked for, at most; refusals are forgotten at every hundredth look.
_EVICTION_INTERVAL_S = 10.0
_LOOKS_PER_FORGETTING = 100


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Work until `stop` is set: then finish the batch at hand, commit its positions and leave the group.

    A dependency that is down is waited for, readiness red. A bug ends the process (exit code 70).
    Raises `UsageError` for a plug-in that cannot be used.
    """
    crash_points.configure(settings.crash_at)
    health = Health(WORKER, _CHECKS)
    log = batch_logger(WORKER)
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(serve(health, settings.health_host, settings.health_port))
        log.info("worker starts", action="start", health_port=port)
        with suppress(Stopping):
            await _work(settings, stop, health, stack)
        log.info("worker stopped", action="stop")


async def _work(settings: Settings, stop: asyncio.Event, health: Health, stack: AsyncExitStack) -> None:
    rules = Rules(types=load_types())
    database = Database.from_settings(settings, f"tally-{WORKER}", BY_KEY)
    await retry(database.open, name="postgres", health=health, stop=stop)
    stack.push_async_callback(database.close)

    async def start_publisher() -> Publisher:
        publisher = Publisher(settings.kafka(), f"tally-{WORKER}", within_limits=True)
        await publisher.start()
        return publisher

    publisher = await retry(start_publisher, name="kafka", health=health, stop=stop)
    stack.push_async_callback(publisher.stop)

    group = group_of(settings)
    restored = partial(rewind, settings.kafka(), publisher, database, worker=WORKER, group=group, topics=INPUTS)
    await retry(restored, name="kafka", health=health, stop=stop)

    async def consume() -> None:
        await _Session(settings, database, publisher, rules, health, stop).run()

    # A session ends with `stop` or with a broker that is away for longer than its clients bear: then another one.
    await retry(consume, name="kafka", health=health, stop=stop, patience_s=None)


class _Session:
    """One life of the Faust app: from joining the group to leaving it."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        publisher: Publisher,
        rules: Rules,
        health: Health,
        stop: asyncio.Event,
    ) -> None:
        self._settings = settings
        self._database = database
        self._health = health
        self._stop = stop
        self._membership = Membership(health)
        self._connection = settings.kafka()
        self._app: VariablesApp = build_app(settings)
        table = register(self._app, settings, self._handle)
        self._processor = BatchProcessor(
            database,
            publisher,
            table,
            group=group_of(settings),
            rules=rules,
            health=health,
            stop=stop,
            log_ends=self._log_ends,
            batch_size=settings.batch_size,
        )
        self._app.on_partitions_revoked.connect(self._on_partitions_revoked)
        self._app.on_rebalance_complete.connect(self._on_rebalance_complete)

    async def run(self) -> None:
        """Run until stopped. Raises `DependencyDown` when Kafka ended the app; any other end is a bug."""
        app = self._app
        tasks = [
            asyncio.create_task(coroutine)
            for coroutine in (
                self._stop.wait(),
                self._start_and_watch(),
                self._tidy(),
                self._membership.watch(self._stop),
            )
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            error = next((task.exception() for task in done if task.exception() is not None), None)
        finally:
            for task in tasks[1:]:
                task.cancel()
            await app.stop()
            await asyncio.gather(*tasks[1:], return_exceptions=True)
            tasks[0].cancel()
        self._health.red(membership.CHECK, "not in the group")
        if error is not None and not isinstance(error, Stopping):
            down = broker_error(error, self._connection.bootstrap_servers)
            if down is None:
                failures.crash(error, worker=WORKER, during="the Faust app")
            raise down

    async def _start_and_watch(self) -> None:
        """Start the app and raise what it crashes with."""
        await self._app.start()
        await self._app._crashed.wait()  # noqa: SLF001 - mode has no public wait for a crash
        raise self._app.crash_reason or RuntimeError("the Faust app crashed without a reason")

    async def _handle(self, fetch: Fetch) -> None:
        """Process a fetch and let its positions be committed. No exception leaves: Faust would acknowledge it."""
        try:
            await self._processor.process(*_received(fetch, self._connection), self._note_finished)
        except Stopping as stopping:
            batch_logger(WORKER).info("batch left undone", action="stop", cause=str(stopping))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - the failure point of the agent
            failures.crash(error, worker=WORKER, during="a batch")
        else:
            cast("FetchConsumer", self._app.consumer).finish(fetch)

    async def _log_ends(self) -> Mapping[Lane, int]:
        return {lane: end for lane, (_, end) in (await extents(self._connection, INPUTS)).items()}

    def _note_finished(self, records: Sequence[ReceivedRecord]) -> None:
        """Let the positions of a batch be committed before its fetch is done: less comes again after a kill."""
        # Of each partition the last one counts.
        positions = {TP(self._connection.wire_name(each.topic), each.partition): each.offset + 1 for each in records}
        cast("FetchConsumer", self._app.consumer).note_finished(positions)

    async def _tidy(self) -> None:
        """Let ended executions leave the table, and old refusals and finished executions the database."""
        interval = min(_EVICTION_INTERVAL_S, max(0.1, self._settings.ended_grace_s / 2))
        looks = 0
        while True:
            await asyncio.sleep(interval)
            looks += 1
            await self._processor.evict(self._settings.ended_grace_s)
            if looks % _LOOKS_PER_FORGETTING == 0:
                await self._delete_old()

    async def _delete_old(self) -> None:
        refusals = partial(delete_refusals, self._database, self._settings.outcome_retention_days)
        await retry(refusals, name="postgres", health=self._health, stop=self._stop)
        executions = partial(delete_finished, self._database, self._settings.execution_retention_days)
        deleted = await retry(executions, name="postgres", health=self._health, stop=self._stop)
        if deleted:
            batch_logger(WORKER).info("finished executions deleted", action="retention", executions=deleted)

    async def _on_partitions_revoked(self, *_: object, **__: object) -> None:
        crash_points.pass_point("in_rebalance")
        self._membership.left()

    async def _on_rebalance_complete(self, *_: object, **__: object) -> None:
        self._membership.joined(lambda: cast("FetchConsumer", self._app.consumer).trouble)


def _received(fetch: Fetch, connection: KafkaConnection) -> tuple[list[ReceivedRecord], Mapping[Lane, int]]:
    """Return the records of a fetch and the ends of their logs, by logical topic and partition."""

    def lane(tp: TP) -> Lane:
        return connection.logical(tp.topic), tp.partition

    records = [
        ReceivedRecord(topic, partition, record.offset, record.key, record.value, record.headers, record.timestamp or 0)
        for (topic, partition), found in ((lane(tp), found) for tp, found in fetch.by_partition.items())
        for record in found
    ]
    return records, {lane(tp): end for tp, end in fetch.log_ends.items()}
