"""What PostgreSQL and the table know of a batch: its fences, its executions, and what was applied of it before.

The first step of a batch: everything is locked here that the batch may change.
"""

from collections.abc import Mapping, Sequence
from uuid import UUID

from schemas.limits import DEFAULT_LIMITS
from topics.catalog import Topic
from topics.records import ReceivedRecord
from workers.logic.memory.commands import Rules
from workers.logic.memory.items import Item
from workers.logic.variables.simulation import NeedsMemory
from workers.logic.variables.state import ExecutionKey, ExecutionState
from workers.logic.variables.step import ForkSource, RealMemory
from workers.runtime.health import Health
from workers.runtime.items import list_records, read_items
from workers.runtime.logs import batch_logger
from workers.runtime.positions import AskLogEnds, made_anew
from workers.runtime.postgres import Connection
from workers.variables import store
from workers.variables.decision import Facts
from workers.variables.handover import taken_over
from workers.variables.intake import Arrival
from workers.variables.parts import fitting, fork_source, positions_after
from workers.variables.steps import Loaded, Read
from workers.variables.store import Head, Lane
from workers.variables.table import ExecutionTable, LiveExecution

#: Topics whose records change the same executions, partition by partition: their fences are taken together.
INPUTS = (Topic.EXECUTION_EVENTS, Topic.ACTIVITY_OUTPUTS, Topic.MEMORY_RESULTS)


class Reader:
    """Reads for one batch at a time, in the transaction that writes it."""

    def __init__(
        self, table: ExecutionTable, *, group: str, rules: Rules, health: Health, log_ends: AskLogEnds[Lane]
    ) -> None:
        self._table = table
        self._log_ends = log_ends
        self._group = group
        self._rules = rules
        self._metrics = health.metrics
        self._log = batch_logger(health.worker)

    async def read(
        self,
        connection: Connection,
        arrivals: Sequence[Arrival],
        records: Sequence[ReceivedRecord],
        log_ends: Mapping[Lane, int],
    ) -> Read:
        """Lock and read what `arrivals`, which lie in `records`, may change; or as many of them as fit into memory."""
        lanes = {(topic, record.partition) for topic in INPUTS for record in records}
        stored = await store.lock_positions(connection, self._group, lanes)
        for lane in await made_anew(stored, log_ends, self._log_ends):
            self._log.warning("topic was made anew", action="position_reset", lane=str(lane), was=stored[lane])
            stored[lane] = 0
        _, behind = positions_after(records, stored)

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
        ours = {key for key, head in heads.items() if self._table.continues(partition_of[key], key, head.revision)}
        met = taken_over(heads, ours, {each.execution for each in arrivals if each.key not in known}, known.values())
        left: Sequence[Arrival] = ()
        if known or met:
            unpublished_bytes = await store.bytes_from(connection, met) if met else {}
            count = fitting(arrivals, known, unpublished_bytes, DEFAULT_LIMITS.batch_bytes)
            arrivals, left = arrivals[:count], arrivals[count:]
        undecided = [arrival for arrival in arrivals if arrival.key not in known]
        wanted = {arrival.execution: heads[arrival.execution] for arrival in undecided}
        here = {arrival.execution for arrival in arrivals}
        taken = {key: revision for key, revision in met.items() if key in here}
        unpublished = await store.revisions_from(connection, taken) if taken else {}
        again = [arrival.key for arrival in arrivals if arrival.key in known]
        loaded = await self._load(connection, wanted, partition_of)
        facts = Facts(
            now=now or await store.database_now(connection),
            limits=DEFAULT_LIMITS,
            known=await store.revisions_of(connection, again) if again else {},
            refused=refused,
            states={key: each.state for key, each in loaded.items()},
            forks=await self._forks(connection, undecided),
            memory=RealMemory(self._rules),
        )
        unused = {key for key in strangers if heads[key].data is None}
        return Read(arrivals, left, stored, behind, facts, loaded, unused, heads, taken, unpublished)

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


async def with_real_memory(connection: Connection, facts: Facts, needs: NeedsMemory) -> RealMemory:
    """Return what simulations know of real memory, and what they ask for now: an item without a row is none."""
    known = facts.memory
    _, found = await read_items(connection, list(needs.addresses))
    items = {address: found.get(address, Item(address)) for address in needs.addresses}
    listings = {prefix: await list_records(connection, prefix, facts.now) for prefix in needs.prefixes}
    return RealMemory(known.rules, {**known.items, **items}, {**known.listings, **listings})
