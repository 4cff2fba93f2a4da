"""input topics -> revisions in PostgreSQL -> variable-updates, node-results, memory-commands, dead-letters.

A batch in three steps: read, decide, write. Then what was committed is published, then the table's changelog, while
the next batch is committed; when `process` returns, all of it is acknowledged and the input may be.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import chain
from time import monotonic
from typing import TypeVar

from topics.catalog import Topic
from topics.publisher import Publisher
from topics.records import ReceivedRecord, Record
from workers.logic.memory.commands import Rules
from workers.logic.variables.simulation import NeedsMemory
from workers.logic.variables.state import ExecutionKey
from workers.runtime.crash_points import pass_point
from workers.runtime.health import Health
from workers.runtime.logs import batch_logger
from workers.runtime.positions import AskLogEnds
from workers.runtime.postgres import Connection, Database
from workers.runtime.retry import retry
from workers.variables import store
from workers.variables.decision import Decision, decide, head_rows
from workers.variables.handover import newest
from workers.variables.intake import Arrival, Intake, take_in
from workers.variables.parts import before_fork, positions_after, records_before, slices
from workers.variables.reading import Reader, with_real_memory
from workers.variables.steps import Committed, Read
from workers.variables.store import HeadRow, Lane
from workers.variables.table import ExecutionTable

Result = TypeVar("Result")
Finished = Callable[[Sequence[ReceivedRecord]], None]

#: Records between two looks at what else waits: about a millisecond, so that PostgreSQL's answers are not kept waiting.
_UNDERSTOOD_AT_ONCE = 25


class BatchProcessor:
    """Processes batches one at a time. Everything it holds besides the table is connections."""

    def __init__(
        self,
        database: Database,
        publisher: Publisher,
        table: ExecutionTable,
        *,
        group: str,
        rules: Rules,
        health: Health,
        stop: asyncio.Event,
        log_ends: AskLogEnds[Lane],
        batch_size: int = 500,
    ) -> None:
        self._reader = Reader(table, group=group, rules=rules, health=health, log_ends=log_ends)
        self._database = database
        self._publisher = publisher
        self._table = table
        self._group = group
        self._batch_size = batch_size
        #: Of the batch that is being published now: its executions, and from which revision on.
        self._unpublished: Mapping[ExecutionKey, int] = {}
        self._health = health
        self._metrics = health.metrics
        self._stop = stop
        self._busy = asyncio.Lock()
        self._log = batch_logger(health.worker)

    async def process(
        self, records: Sequence[ReceivedRecord], log_ends: Mapping[Lane, int], finished: Finished
    ) -> None:
        """Apply `records` and return when all they cause is acknowledged. Waits out what can be waited out.

        `finished` is told of each batch of them, in order, once all that it causes is acknowledged.
        While one batch of them is committed, the next is understood and the one before is published, each in its
        order. Raises `Stopping` when asked to stop while a dependency is down; the rest may not be acknowledged then.
        """
        async with self._busy:
            highest = max(record.partition for record in records)
            partitions = await self._retry(lambda: self._publisher.partitions(Topic.EXECUTION_EVENTS, highest), "kafka")
            tasks: set[asyncio.Task[object]] = set()
            try:
                await self._process(slices(records, self._batch_size), partitions, log_ends, finished, tasks)
            except BaseException:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                raise

    async def _process(
        self,
        batches: Iterator[Sequence[ReceivedRecord]],
        partitions: int,
        log_ends: Mapping[Lane, int],
        finished: Finished,
        tasks: set["asyncio.Task[object]"],
    ) -> None:
        def start(work: Coroutine[object, object, Result]) -> asyncio.Task[Result]:
            task = asyncio.create_task(work)
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            return task

        publishing: asyncio.Task[None] | None = None
        understanding: asyncio.Task[Intake] | None = start(_understand(next(batches), partitions))
        while understanding is not None:
            intake = await understanding
            records = next(batches, None)
            understanding = None if records is None else start(_understand(records, partitions))
            arrivals: Sequence[Arrival] | None = intake.arrivals
            while arrivals is not None:
                started = monotonic()
                with self._step("commit"):
                    committed = await self._retry(partial(self._commit, arrivals, intake.records, log_ends), "postgres")
                pass_point("after_commit")
                changelog = self._update_table(committed)
                if publishing is not None:
                    await publishing
                self._unpublished = committed.since
                work = self._publish(committed, intake, changelog, len(arrivals) - len(committed.left), started)
                publishing = start(work if committed.left else _and_tell(work, finished, intake.records))
                arrivals = committed.left or None
                intake = Intake(records=intake.records)
        if publishing is not None:
            await publishing

    async def _publish(
        self, committed: Committed, intake: Intake, changelog: Sequence[Record], arrivals: int, started: float
    ) -> None:
        """Publish what a batch committed, then its changes of the table; return when all is acknowledged."""
        decision = committed.decision
        letters = [letter for _, letter in chain(intake.letters, decision.letters)]
        outgoing = [*decision.outgoing(), *letters, *intake.forwards]
        with self._step("publish"):
            await self._retry(lambda: self._publisher.publish(outgoing), "kafka")
        pass_point("after_publish")
        self._unpublished = {}
        await self._note_published(committed.taken)
        with self._step("changelog"):
            await self._publish_changelog(changelog)
        pass_point("after_changelog")
        done = arrivals + len(intake.letters) + len(intake.forwards) + intake.unasked
        self._account(done, intake, committed, outgoing, monotonic() - started)

    async def _commit(
        self, arrivals: Sequence[Arrival], records: Sequence[ReceivedRecord], log_ends: Mapping[Lane, int]
    ) -> Committed:
        """Commit what `arrivals` bring about, or the first of them: what fits into one message to PostgreSQL."""
        count = before_fork(arrivals)
        async with self._database.transaction() as connection:
            read = await self._reader.read(connection, arrivals[:count], records, log_ends)
            decision = await self._decide(connection, read)
            left = [*decision.left, *read.left, *arrivals[count:]]
            positions, _ = positions_after(records_before(records, left), read.stored)
            decision.handed_over = {key: row for key, row in read.unpublished.items() if key not in decision.replayed}
            heads = head_rows(decision, read.facts.states, {**self._unpublished, **read.taken})
            await self._write(connection, read, decision, heads, positions)
            pass_point("before_commit")
        taken = newest(read.taken, read.heads, read.facts.states)
        since = {**read.taken, **{row.execution: row.unpublished_from for row in heads}}
        return Committed(decision, read.loaded, len(read.behind), taken, since, left)

    async def _decide(self, connection: Connection, read: Read) -> Decision:
        """Decide the batch; where a simulated run asks for real memory, read that and decide the batch again."""
        while True:
            try:
                return decide(read.arrivals, read.facts)
            except NeedsMemory as needs:
                memory = await with_real_memory(connection, read.facts, needs)
                read.loaded = {key: each.afresh(key) for key, each in read.loaded.items()}
                states = {key: each.state for key, each in read.loaded.items()}
                read.facts = replace(read.facts, memory=memory, states=states)

    # -- write

    async def _write(
        self,
        connection: Connection,
        read: Read,
        decision: Decision,
        heads: Sequence[HeadRow],
        positions: Mapping[Lane, int],
    ) -> None:
        await store.write_batch(
            connection,
            self._group,
            now=read.facts.now,
            heads=heads,
            revisions=decision.revisions,
            refusals=decision.refusals,
            positions=positions,
        )
        if decision.inherited:
            await store.inherit_revisions(connection, decision.inherited)
        unused = read.unused - decision.changes.keys()
        if unused:
            await store.drop_unused(connection, unused)

    def _update_table(self, committed: Committed) -> list[Record]:
        """Bring the table to what was committed; return the changelog records that say so."""
        changelog: list[Record] = []
        used_at = monotonic()
        for key, loaded in committed.loaded.items():
            live, state = loaded.live, loaded.state
            changes = committed.decision.changes.get(key)
            live.state = state
            live.used_at = used_at
            if changes is not None:
                live.revision, live.head, live.ended = state.revision, state.head, state.ended
            if loaded.rebuilt and live.revision > 0:
                live.ended = state.ended
                changelog += self._table.adopt(loaded.partition, key, live, changes or {})
            elif changes is not None:
                changelog += self._table.change(loaded.partition, key, live, changes)
            state.committed()
        self._metrics.live_executions.set(len(self._table))
        return changelog

    def _account(
        self, records: int, intake: Intake, committed: Committed, outgoing: Sequence[Record], seconds: float
    ) -> None:
        """Count the batch and write its canonical line."""
        decision, worker = committed.decision, self._health.worker
        outcomes = {
            "applied": len(decision.revisions),
            "replayed": len(decision.replayed),
            "handed_over": len(decision.handed_over),
            "unrecorded": decision.unrecorded + intake.unasked,
            "rejected": len(intake.letters) + len(decision.letters),
            "forwarded": len(intake.forwards),
            "behind": committed.behind,
        }
        for outcome, count in outcomes.items():
            self._metrics.events.labels(worker, outcome).inc(count)
        for code, _ in chain(intake.letters, decision.letters):
            self._metrics.dead_letters.labels(worker, code).inc()
        for topic, count in Counter(record.topic for record in outgoing).items():
            self._metrics.published.labels(worker, topic.value).inc(count)
        self._metrics.batches.labels(worker).inc()
        self._metrics.batch_seconds.labels(worker).observe(seconds)
        self._metrics.batch_events.labels(worker).observe(records)
        self._log.info("batch", action="batch", records=records, ms=round(seconds * 1000, 2), **outcomes)

    def _step(self, step: str) -> AbstractContextManager[None]:
        """Time one step of a batch."""
        timer: AbstractContextManager[None] = self._metrics.step_seconds.labels(self._health.worker, step).time()
        return timer

    async def _publish_changelog(self, changelog: Sequence[Record]) -> None:
        self._table.note_published(await self._retry(lambda: self._publisher.publish(changelog), "kafka"))

    async def _retry(self, action: Callable[[], Awaitable[Result]], check: str) -> Result:
        return await retry(action, name=check, health=self._health, stop=self._stop)

    # -- beside the batches

    async def evict(self, grace_s: float) -> None:
        """Let ended executions that were not used for `grace_s` leave the table. Raises `Stopping`."""
        async with self._busy:
            unused_since = monotonic() - grace_s
            await self._note_published(self._table.leaving(unused_since))
            before = len(self._table)
            tombstones = self._table.evict(unused_since)
            self._metrics.evicted.inc(before - len(self._table))
            await self._publish_changelog(tombstones)
            self._metrics.live_executions.set(len(self._table))

    async def _note_published(self, revisions: Mapping[ExecutionKey, int]) -> None:
        async def note() -> None:
            async with self._database.session() as connection:
                await store.note_published(connection, revisions)

        if revisions:
            await self._retry(note, "postgres")


async def _and_tell(work: Awaitable[None], finished: Finished, records: Sequence[ReceivedRecord]) -> None:
    await work
    finished(records)


async def _understand(records: Sequence[ReceivedRecord], partitions: int) -> Intake:
    intake = Intake(records=records)
    for part in slices(records, _UNDERSTOOD_AT_ONCE):
        take_in(part, partitions, intake)
        await asyncio.sleep(0)
    return intake
