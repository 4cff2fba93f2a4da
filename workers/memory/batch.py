"""memory-commands -> items, versions and outcomes in PostgreSQL -> memory-results, -conflicts, -changes, dead-letters.

A batch is read (or remembered), decided and written, by one statement that compares and sets; what it committed is
published afterwards, from what was stored, so that every delivery of a command publishes the same bytes.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from schemas.errors import Fenced
from schemas.exact_json import JsonObject
from topics.catalog import Topic
from topics.codec import STRUCTURED_HEADERS, encode
from topics.records import ReceivedRecord, Record
from workers.logic.memory.commands import Command, Rules
from workers.logic.memory.decide import Decision
from workers.logic.memory.events import changed_event, conflict_event, outcome_event, reply_key
from workers.logic.memory.items import Item
from workers.logic.memory.plan import Plan, Seen, Stored, needed_bases, needed_listings, plan
from workers.memory import store
from workers.memory.intake import Addresses, Intake, Letter, addresses_of, letter
from workers.memory.recent import RecentItems
from workers.memory.store import Known, Move, StoredOutcome, Writes
from workers.runtime.crash_points import pass_point
from workers.runtime.items import list_records, read_items
from workers.runtime.postgres import Connection, Database

#: Rows are never deleted, so an address that had one has one: so many of them need no insert.
_REMEMBERED_ADDRESSES = 200_000
#: Who was overtaken is likely to be so again soon (a worker that was replaced, records without a key): such a batch and
#: those after it lock what they change.
_CAREFUL_BATCHES = 100


@dataclass(slots=True)
class Committed:
    """What a batch leaves to publish, in order, and what there is to count."""

    outgoing: list[Record] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    #: The newest state that `outgoing` shows of each changed item.
    changed: dict[str, Item] = field(default_factory=dict)
    conflicts: list[JsonObject] = field(default_factory=list)
    applied: int = 0
    replayed: int = 0


class MemoryBatches:
    """Applies batches, one at a time. What it remembers between them only saves work."""

    def __init__(self, database: Database, rules: Rules, *, group: str, outcome_retention: timedelta) -> None:
        self._database = database
        self._rules = rules
        self._group = group
        self._outcome_retention = outcome_retention
        self._with_rows: set[str] = set()
        self._recent = RecentItems()
        #: Partition -> the position that this worker left; a partition that it does not know is looked up.
        self._left_at: dict[int, int] = {}
        self._batches_under_locks = 0

    def forget(self, partitions: Iterable[int]) -> None:
        """Look fences and items up again: partitions were assigned anew, or someone else works on them."""
        for partition in partitions:
            self._left_at.pop(partition, None)
        self._recent.clear()

    async def apply(
        self, intake: Intake, log_ends: Mapping[int, int], on_decided: Callable[[], None] = lambda: None
    ) -> Committed:
        """Apply a batch and return what it committed. May be called again for the same batch after any error.

        It is decided on what is read without locks, or was written by this worker last, and written by one statement
        that finds all of it unchanged or writes nothing. A batch that was overtaken is decided again, then under its
        items' locks.

        `log_ends` are the offsets after the newest record of each partition. `on_decided` is called when only
        PostgreSQL has work left, the longest wait of a batch: the time to begin what is next. Raises
        `DependencyDown`; `Fenced` when someone else changed these items, applied records of these partitions, or
        decided one of these commands, meanwhile.
        """
        commands = [command for _, command in intake.arrivals]
        addresses = addresses_of(commands)
        left_at = await self._positions(sorted(intake.positions))
        await self._add_rows(addresses.written)
        # A topic that ends before its position was made anew: nothing of it was applied.
        fences = {
            partition: 0 if log_ends.get(partition, position) < position else position
            for partition, position in left_at.items()
        }
        try:
            async with self._session(addresses) as connection:
                stored, known = await self._read(connection, commands, addresses)
                arrivals, too_late = self._split_too_late(intake.arrivals, fences, known)
                planned = plan((command for _, command in arrivals), stored, now=known.now, rules=self._rules)
                composed = compose(arrivals, planned, stored, known)
                # Never back: what a zombie or a restarted worker sends again may end before what others applied.
                moves = [
                    Move(partition, left_at[partition], max(offset, fences[partition]))
                    for partition, offset in intake.positions.items()
                ]
                on_decided()
                pass_point("before_commit")
                await store.write_batch(connection, self._writes(planned, composed, stored, known, moves))
        except Fenced:
            self.forget(intake.positions)
            self._with_rows -= addresses.written
            self._batches_under_locks = _CAREFUL_BATCHES
            raise
        self._recent.add(planned.items.values())
        self._left_at.update({move.partition: move.next_offset for move in moves})
        self._batches_under_locks = max(0, self._batches_under_locks - 1)
        committed = composed.committed
        committed.letters = [*intake.letters, *too_late, *committed.letters]
        return committed

    @asynccontextmanager
    async def _session(self, addresses: Addresses) -> AsyncIterator[Connection]:
        """Lend a session; while others work on the same items, with these locked, so that nobody overtakes."""
        async with self._database.session() as connection:
            if not self._batches_under_locks:
                yield connection
                return
            async with connection.transaction():
                await store.lock_items(connection, sorted(addresses.locked))
                yield connection

    async def _positions(self, partitions: Sequence[int]) -> Mapping[int, int]:
        """Return where this worker left partitions, or finds them."""
        unknown = [partition for partition in partitions if partition not in self._left_at]
        found = {partition: self._left_at[partition] for partition in partitions if partition in self._left_at}
        if unknown:
            async with self._database.session() as connection:
                await store.add_positions(connection, self._group, unknown)
                found |= await store.read_positions(connection, self._group, unknown)
        return found

    async def _add_rows(self, written: set[str]) -> None:
        """Give addresses that have none a row, in its own transaction: inside the batch's own it could deadlock."""
        addresses = written - self._with_rows
        if not addresses:
            return
        async with self._database.session() as connection:
            await store.add_items(connection, sorted(addresses))
        if len(self._with_rows) > _REMEMBERED_ADDRESSES:
            self._with_rows.clear()
        self._with_rows |= addresses

    async def _read(
        self, connection: Connection, commands: Sequence[Command], addresses: Addresses
    ) -> tuple[Stored, Known]:
        """Look up what is known before the items (see queries.sql), and those that are not at hand."""
        now, outcomes = await store.read_known(connection, [command.key for command in commands])
        recent = {} if self._batches_under_locks else self._recent.find(addresses.locked, now)
        items: Mapping[str, Item] = recent
        wanted = [*(addresses.locked - recent.keys()), *addresses.read]
        if wanted:
            now, found = await read_items(connection, wanted)
            items = {**recent, **found}
        bases = needed_bases(commands, items)
        stored = Stored(
            items,
            {key: outcome.digest for key, outcome in outcomes.items()},
            await store.read_bases(connection, bases) if bases else {},
            {prefix: await list_records(connection, prefix, now) for prefix in needed_listings(commands)},
        )
        return stored, Known(now, outcomes, recent)

    def _writes(
        self, planned: Plan, composed: "Composed", stored: Stored, known: Known, moves: Sequence[Move]
    ) -> Writes:
        """Return what to write. A row that is gone (the database was restored) is not found, and made the next time."""
        read = stored.items
        return Writes(
            known.now,
            planned.items,
            {address: read[address].sequence if address in read else 0 for address in planned.items},
            {address: item.sequence for address, item in known.recent.items() if address not in planned.items},
            planned.replaced,
            composed.outcomes,
            planned.erased,
            self._group,
            moves,
        )

    def _split_too_late(
        self, arrivals: Sequence[tuple[ReceivedRecord, Command]], fences: Mapping[int, int], known: Known
    ) -> tuple[Sequence[tuple[ReceivedRecord, Command]], list[Letter]]:
        """Sort out what was applied so long ago that its outcome is gone: it must not be applied again."""
        oldest_ms = (known.now - self._outcome_retention).timestamp() * 1000
        late = [
            record
            for record, command in arrivals
            if record.offset < fences[record.partition]
            and record.timestamp_ms < oldest_ms
            and command.key not in known.outcomes
        ]
        if not late:
            return arrivals, []
        places = {(record.partition, record.offset) for record in late}
        message = "the command came again after its outcome was deleted; publish it under a new id if it is meant"
        return (
            [pair for pair in arrivals if (pair[0].partition, pair[0].offset) not in places],
            [letter(record, "outcome_expired", message) for record in late],
        )


@dataclass(slots=True)
class Composed:
    """A plan as rows of outcomes, and as what is to be published."""

    outcomes: list[StoredOutcome] = field(default_factory=list)
    committed: Committed = field(default_factory=Committed)

    def add(self, outcome: StoredOutcome) -> None:
        """Publish the outcome and the conflict that are stored for a command."""
        outgoing = self.committed.outgoing
        outgoing.append(Record(Topic.MEMORY_RESULTS, outcome.reply_key.encode(), outcome.outcome, STRUCTURED_HEADERS))
        if outcome.conflict is not None:
            assert outcome.address is not None, "a conflict is about an item"
            outgoing.append(
                Record(Topic.MEMORY_CONFLICTS, outcome.address.encode(), outcome.conflict, STRUCTURED_HEADERS)
            )

    def show(self, item: Item) -> None:
        """Publish the state of an item."""
        self.committed.changed[item.address] = item
        self.committed.outgoing.extend(change_records(item))


def compose(
    arrivals: Iterable[tuple[ReceivedRecord, Command]], planned: Plan, stored: Stored, known: Known
) -> Composed:
    """Return the rows and records of a plan. Pure: the bytes that are stored are the bytes that are published."""
    composed = Composed()
    committed = composed.committed
    for (record, command), answer in zip(arrivals, planned.answers, strict=True):
        if isinstance(answer, Decision):
            outcome = _stored_outcome(answer)
            composed.outcomes.append(outcome)
            composed.add(outcome)
            committed.applied += 1
            if answer.conflict is not None:
                committed.conflicts.append(answer.conflict)
            if answer.item is not None:
                composed.show(answer.item)
        elif answer is Seen.BEFORE:
            composed.add(known.outcomes[command.key])
            committed.replayed += 1
            item = stored.items.get(command.address or "")
            # Only the newest change is sent again: an older one would lie over it in the compacted topic.
            if item is not None and item.changed_by == command.key:
                composed.show(item)
        elif answer is Seen.REUSED:
            message = f"the id {command.event.id!r} of {command.event.source!r} came before with other content"
            committed.letters.append(letter(record, "id_reused", message))
    return composed


def _stored_outcome(decision: Decision) -> StoredOutcome:
    conflict = conflict_event(decision)
    return StoredOutcome(
        decision.command.key,
        decision.command.digest,
        decision.command.address,
        reply_key(decision),
        encode(outcome_event(decision)),
        None if conflict is None else encode(conflict),
    )


def change_records(item: Item) -> list[Record]:
    """Return the records that show an item: its state, and a tombstone after it when the item is gone."""
    key = item.address.encode()
    state = Record(Topic.MEMORY_CHANGES, key, encode(changed_event(item)), STRUCTURED_HEADERS)
    return [state] if item.value is not None else [state, Record(Topic.MEMORY_CHANGES, key, None)]
