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
from uuid import UUID

from schemas.limits import DEFAULT_LIMITS
from topics.catalog import Topic
from topics.publisher import Publisher
from topics.records import ReceivedRecord, Record
from workers.logic.memory.commands import Rules
from workers.logic.memory.items import Item
from workers.logic.variables.simulation import NeedsMemory
from workers.logic.variables.state import ExecutionKey, ExecutionState
from workers.logic.variables.step import ForkSource, RealMemory
from workers.runtime.crash_points import pass_point
from workers.runtime.health import Health
from workers.runtime.items import list_records, read_items
from workers.runtime.logs import batch_logger
from workers.runtime.postgres import Connection, Database
from workers.runtime.retry import retry
from workers.variables import store
from workers.variables.decision import Decision, Facts, decide, head_rows
from workers.variables.handover import newest, taken_over
from workers.variables.intake import Arrival, Intake, take_in
from workers.variables.parts import cut_before_forks, fork_source, positions_after, slices
from workers.variables.steps import Committed, Loaded, Read
from workers.variables.store import Head, HeadRow, Lane
from workers.variables.table import ExecutionTable, LiveExecution

Result = TypeVar("Result")
Finished = Callable[[Sequence[ReceivedRecord]], None]

#: Records between two looks at what else waits: about a millisecond, so that PostgreSQL's answers are not kept waiting.
_UNDERSTOOD_AT_ONCE = 25

#: Topics whose records change the same executions, partition by partition: their fences are taken together.
INPUTS = (Topic.EXECUTION_EVENTS, Topic.ACTIVITY_OUTPUTS, Topic.MEMORY_RESULTS)


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
        batch_size: int = 500,
    ) -> None:
        self._rules = rules
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
            newest = max(record.partition for record in records)
            partitions = await self._retry(lambda: self._publisher.partitions(Topic.EXECUTION_EVENTS, newest), "kafka")
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
            parts = cut_before_forks(intake.arrivals)
            for arrivals in parts:
                started = monotonic()
                with self._step("commit"):
                    committed = await self._retry(partial(self._commit, arrivals, intake.records, log_ends), "postgres")
                pass_point("after_commit")
                changelog = self._update_table(committed)
                if publishing is not None:
                    await publishing
                self._unpublished = committed.since
                work = self._publish(committed, intake, changelog, len(arrivals), started)
                publishing = start(_and_tell(work, finished, intake.records) if arrivals is parts[-1] else work)
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
        async with self._database.transaction() as connection:
            read = await self._read(connection, arrivals, records, log_ends)
            decision = await self._decide(connection, arrivals, read)
            decision.handed_over = {key: row for key, row in read.unpublished.items() if key not in decision.replayed}
            heads = head_rows(decision, read.facts.states, {**self._unpublished, **read.taken})
            await self._write(connection, read, decision, heads)
            pass_point("before_commit")
        taken = newest(read.taken, read.heads, read.facts.states)
        since = {row.execution: row.unpublished_from for row in heads}
        return Committed(decision, read.loaded, len(read.behind), taken, since)

    # -- read

    async def _read(
        self,
        connection: Connection,
        arrivals: Sequence[Arrival],
        records: Sequence[ReceivedRecord],
        log_ends: Mapping[Lane, int],
    ) -> Read:
        lanes = {(topic, record.partition) for topic in INPUTS for record in records}
        stored = await store.lock_positions(connection, self._group, lanes)
        for lane, position in stored.items():
            if position > log_ends.get(lane, position):
                self._log.warning("topic was made anew", action="position_reset", lane=str(lane), was=position)
                stored[lane] = 0
        positions, behind = positions_after(records, stored)

        partition_of = {arrival.execution: arrival.record.partition for arrival in arrivals}
        strangers = [key for key, partition in partition_of.items() if self._table.live(partition, key) is None]
        if strangers:
            await store.open_executions(connection, strangers)
        heads, now = await store.lock_heads(connection, partition_of)
        # The table may know of executions that a database restored from a backup does not.
        if forgotten := partition_of.keys() - heads.keys():
            strangers += forgotten
            await store.open_executions(connection, forgotten)
            heads |= (await store.lock_heads(connection, forgotten))[0]
        known = await store.known_events(connection, [arrival.key for arrival in arrivals])
        refused = await store.known_refusals(connection, behind) if behind else {}
        undecided = [arrival for arrival in arrivals if arrival.key not in known]
        wanted = {arrival.execution: heads[arrival.execution] for arrival in undecided}
        ours = {key for key, head in heads.items() if self._table.continues(partition_of[key], key, head.revision)}
        taken = taken_over(heads, ours, wanted, known.values())
        unpublished = await store.revisions_from(connection, taken) if taken else {}
        loaded = await self._load(connection, wanted, partition_of)
        facts = Facts(
            now=now or await store.database_now(connection),
            limits=DEFAULT_LIMITS,
            known=known,
            refused=refused,
            states={key: each.state for key, each in loaded.items()},
            forks=await self._forks(connection, undecided),
            memory=RealMemory(self._rules),
        )
        unused = {key for key in strangers if heads[key].data is None}
        return Read(positions, behind, facts, loaded, unused, heads, taken, unpublished)

    async def _load(
        self, connection: Connection, heads: Mapping[ExecutionKey, Head], partition_of: Mapping[ExecutionKey, int]
    ) -> dict[ExecutionKey, Loaded]:
        """Load the stores: from the table where it is at the committed revision, else from the revisions."""
        loaded: dict[ExecutionKey, Loaded] = {}
        outdated: dict[ExecutionKey, int] = {}
        for key, head in heads.items():
            live = self._table.live(partition_of[key], key)
            if head.data is None:
                live = LiveExecution.rebuilt(0, b"", {})
                loaded[key] = Loaded(
                    partition_of[key], live, ExecutionState.load(key, None, live.entries), rebuilt=True
                )
            elif live is not None and live.revision == head.revision and live.is_whole():
                # The working copy is taken out: if this attempt rolls back, it is not used again.
                state, live.state = live.state, None
                state = state or ExecutionState.load(key, head.data, live.entries)
                loaded[key] = Loaded(partition_of[key], live, state, rebuilt=False)
            else:
                outdated[key] = head.revision
        if outdated:
            self._metrics.rebuilt.inc(len(outdated))
            for key, entries in (await store.entries_at(connection, outdated)).items():
                head = heads[key]
                live = LiveExecution.rebuilt(head.revision, head.data or b"", entries)
                state = ExecutionState.load(key, head.data, entries)
                loaded[key] = Loaded(partition_of[key], live, state, rebuilt=True)
        return loaded

    async def _forks(self, connection: Connection, undecided: Sequence[Arrival]) -> dict[UUID, ForkSource]:
        """Load what the forked executions among `undecided` begin with."""
        forks: dict[UUID, ForkSource] = {}
        for arrival in undecided:
            source = fork_source(arrival)
            if source is not None:
                key, revision = source
                found = await store.hold_revision(connection, key, revision)
                entries = (await store.entries_at(connection, {key: revision}))[key] if found else {}
                forks[arrival.key] = ForkSource(entries, found)
        return forks

    # -- decide

    async def _decide(self, connection: Connection, arrivals: Sequence[Arrival], read: Read) -> Decision:
        """Decide the batch; where a simulated run asks for real memory, read that and decide the batch again."""
        while True:
            try:
                return decide(arrivals, read.facts)
            except NeedsMemory as needs:
                memory = await _with_real_memory(connection, read.facts, needs)
                read.loaded = {key: each.afresh(key) for key, each in read.loaded.items()}
                states = {key: each.state for key, each in read.loaded.items()}
                read.facts = replace(read.facts, memory=memory, states=states)

    # -- write

    async def _write(self, connection: Connection, read: Read, decision: Decision, heads: Sequence[HeadRow]) -> None:
        await store.write_batch(
            connection,
            self._group,
            now=read.facts.now,
            heads=heads,
            revisions=decision.revisions,
            refusals=decision.refusals,
            positions=read.positions,
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

    async def forget_refusals(self, older_than_days: int) -> None:
        """Forget refusals whose records no topic holds any more. Raises `Stopping`."""

        async def forget() -> None:
            async with self._database.session() as connection:
                await store.forget_refusals(connection, older_than_days)

        await self._retry(forget, "postgres")


async def _and_tell(work: Awaitable[None], finished: Finished, records: Sequence[ReceivedRecord]) -> None:
    await work
    finished(records)


async def _understand(records: Sequence[ReceivedRecord], partitions: int) -> Intake:
    intake = Intake(records=records)
    for part in slices(records, _UNDERSTOOD_AT_ONCE):
        take_in(part, partitions, intake)
        await asyncio.sleep(0)
    return intake


async def _with_real_memory(connection: Connection, facts: Facts, needs: NeedsMemory) -> RealMemory:
    """Return what simulations know of real memory, and what they ask for now: an item without a row is none."""
    known = facts.memory
    found = await read_items(connection, list(needs.addresses))
    items = {address: found.get(address, Item(address)) for address in needs.addresses}
    listings = {prefix: await list_records(connection, prefix, facts.now) for prefix in needs.prefixes}
    return RealMemory(known.rules, {**known.items, **items}, {**known.listings, **listings})
