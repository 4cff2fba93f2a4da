"""memory-commands -> items, versions and outcomes in PostgreSQL -> memory-results, -conflicts, -changes, dead-letters.

A batch is read (or remembered), decided and written, by one statement that compares and sets; what it committed is
published afterwards, from what was stored, so that every delivery of a command publishes the same bytes.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from time import monotonic

from schemas.errors import DependencyDown, Fenced
from topics.records import ReceivedRecord
from workers.logic.memory.commands import Command, Rules
from workers.logic.memory.items import Version
from workers.logic.memory.plan import Plan, Stored, needed_bases, needed_listings, plan
from workers.memory import store
from workers.memory.compose import Committed, Composed, compose
from workers.memory.intake import Addresses, Intake, Letter, addresses_of, letter
from workers.memory.lookup import Found, look_up
from workers.memory.recent import RecentItems
from workers.memory.store import Move, Writes
from workers.runtime.crash_points import pass_point
from workers.runtime.items import list_records
from workers.runtime.positions import AskLogEnds, made_anew
from workers.runtime.postgres import Connection, Database

#: Rows are never deleted, so an address that had one has one: so many of them need no insert.
_REMEMBERED_ADDRESSES = 200_000
#: Who was overtaken is likely to be so again soon (a worker that was replaced, records without a key): such a batch and
#: those after it lock what they change.
_CAREFUL_BATCHES = 100
#: What was decided ahead counts so long. It rests on the clock too, which the statement that writes does not look at:
#: where Kafka was away for minutes, items have expired since. No retention is shorter.
_AHEAD_S = 1.0


@dataclass(frozen=True, slots=True)
class Decided:
    """A batch that only needs to be written; it rests on the batch `after` (0: on what is stored)."""

    number: int
    after: int
    #: Monotonic seconds.
    decided_at: float
    planned: Plan
    composed: Composed
    writes: Writes
    too_late: Sequence[Letter]


class MemoryBatches:
    """Applies batches, one at a time. What it remembers between them only saves work."""

    def __init__(
        self,
        database: Database,
        rules: Rules,
        *,
        group: str,
        outcome_retention: timedelta,
        log_ends: AskLogEnds[int],
    ) -> None:
        self._database = database
        self._rules = rules
        self._group = group
        self._log_ends = log_ends
        self._outcome_retention = outcome_retention
        self._with_rows: set[str] = set()
        self._recent = RecentItems()
        #: Partition -> the position that this worker left; a partition that it does not know is looked up.
        self._left_at: dict[int, int] = {}
        self._batches_under_locks = 0
        self._numbers = count(1)
        #: The batch that is being written, or was last; and the number of the one that was.
        self._current: Decided | None = None
        self._written = 0

    def forget(self, partitions: Iterable[int]) -> None:
        """Look fences and items up again: partitions were assigned anew, or someone else works on them."""
        for partition in partitions:
            self._left_at.pop(partition, None)
        self._recent.clear()

    async def decide_ahead(self, intake: Intake, log_ends: Mapping[int, int]) -> Decided | None:
        """Decide the next batch on top of the one that is being written.

        None where that is of no use: `apply` then decides it itself, in its turn, and waits for what is away.
        """
        before = self._current
        left_at = {**self._left_at, **_positions_after(before)}
        commands = [command for _, command in intake.arrivals]
        if self._batches_under_locks or not intake.positions.keys() <= left_at.keys() or needed_listings(commands):
            return None
        addresses = addresses_of(commands)
        try:
            fences = await self._fences(left_at, log_ends)
            await self._add_rows(addresses.written)
            async with self._database.session() as connection:
                return await self._decide(connection, intake, addresses, left_at, fences, before)
        except (DependencyDown, Fenced):
            return None

    async def apply(
        self,
        intake: Intake,
        log_ends: Mapping[int, int],
        *,
        ahead: Decided | None = None,
        on_decided: Callable[[], None] = lambda: None,
    ) -> Committed:
        """Apply a batch and return what it committed. May be called again for the same batch after any error.

        It is decided on what is looked up without locks, and written by one statement that finds all of it unchanged
        or writes nothing. A batch that was overtaken is decided again, then under its items' locks.

        `log_ends` are the offsets after the newest record of each partition, as a poll saw them. `ahead` is what
        `decide_ahead` made of the batch: it counts for a moment, if the one that it rests on was written as it was
        then, and only for the first call. `on_decided` is called when only PostgreSQL has work left: the time to begin
        what is next. Raises `DependencyDown`; `Fenced` when someone else changed these items, applied records of these
        partitions, or decided one of these commands, meanwhile.
        """
        if ahead is not None and not self._counts(ahead):
            ahead = None
        try:
            decided = await self._write(intake, log_ends, ahead, on_decided)
        except Fenced:
            self.forget(intake.positions)
            self._with_rows -= addresses_of(command for _, command in intake.arrivals).written
            self._batches_under_locks = _CAREFUL_BATCHES
            raise
        self._written = decided.number
        self._recent.add(decided.planned.items.values())
        self._left_at.update(_positions_after(decided))
        self._batches_under_locks = max(0, self._batches_under_locks - 1)
        committed = decided.composed.committed
        committed.letters = [*intake.letters, *decided.too_late, *committed.letters]
        return committed

    def _counts(self, ahead: Decided) -> bool:
        """Tell whether what was decided ahead can be written as it is."""
        is_recent = monotonic() - ahead.decided_at < _AHEAD_S
        return is_recent and ahead.after == self._written and not self._batches_under_locks

    async def _write(
        self, intake: Intake, log_ends: Mapping[int, int], ahead: Decided | None, on_decided: Callable[[], None]
    ) -> Decided:
        """Write a batch, decided ahead or here and now; return when it is committed."""
        if ahead is not None:
            async with self._database.session() as connection:
                return await self._write_decided(connection, ahead, on_decided)
        addresses = addresses_of(command for _, command in intake.arrivals)
        left_at = await self._positions(sorted(intake.positions))
        fences = await self._fences(left_at, log_ends)
        await self._add_rows(addresses.written)
        async with self._session(addresses) as connection:
            decided = await self._decide(connection, intake, addresses, left_at, fences, None)
            return await self._write_decided(connection, decided, on_decided)

    async def _write_decided(self, connection: Connection, decided: Decided, on_decided: Callable[[], None]) -> Decided:
        self._current = decided
        on_decided()
        pass_point("before_commit")
        await store.write_batch(connection, decided.writes)
        return decided

    async def _decide(
        self,
        connection: Connection,
        intake: Intake,
        addresses: Addresses,
        left_at: Mapping[int, int],
        fences: Mapping[int, int],
        before: Decided | None,
    ) -> Decided:
        """Look up and decide a batch, on top of the one `before` it where that one may not be written yet."""
        decided_at = monotonic()
        recent = None if self._batches_under_locks else self._recent
        found = await look_up(connection, [command for _, command in intake.arrivals], addresses, recent)
        bases: Mapping[tuple[str, int], Version] = {}
        if before is not None:
            found = found.after(before.planned.items, before.composed.outcomes)
            bases = {(version.address, version.version): version for version in before.planned.replaced}
        arrivals, too_late = self._split_too_late(intake.arrivals, fences, found)
        commands = [command for _, command in arrivals]
        stored = await self._read(connection, commands, found, bases)
        planned = plan(commands, stored, now=found.now, rules=self._rules)
        composed = compose(arrivals, planned, found)
        # Never back: what a zombie or a restarted worker sends again may end before what others applied.
        moves = [
            Move(partition, left_at[partition], max(offset, fences[partition]))
            for partition, offset in intake.positions.items()
        ]
        return Decided(
            next(self._numbers),
            0 if before is None else before.number,
            decided_at,
            planned,
            composed,
            self._writes(planned, composed, found, moves),
            too_late,
        )

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

    async def _fences(self, left_at: Mapping[int, int], seen: Mapping[int, int]) -> Mapping[int, int]:
        """Return the offsets before which records were applied: none of a topic that was made anew."""
        return {**left_at, **dict.fromkeys(await made_anew(left_at, seen, self._log_ends), 0)}

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
        self,
        connection: Connection,
        commands: Sequence[Command],
        found: Found,
        bases: Mapping[tuple[str, int], Version],
    ) -> Stored:
        """Read what only some commands ask for; `bases` are entries of the history that are not written yet."""
        needed = needed_bases(commands, found.items)
        return Stored(
            found.items,
            {key: outcome.digest for key, outcome in found.outcomes.items()},
            {**await store.read_bases(connection, needed), **bases} if needed else {},
            {prefix: await list_records(connection, prefix, found.now) for prefix in needed_listings(commands)},
        )

    def _writes(self, planned: Plan, composed: Composed, found: Found, moves: Sequence[Move]) -> Writes:
        """Return what to write. A row that is gone (the database was restored) is not found, and made the next time."""
        items = found.items
        return Writes(
            found.now,
            planned.items,
            {address: items[address].sequence if address in items else 0 for address in planned.items},
            {address: items[address].sequence for address in found.remembered - planned.items.keys()},
            planned.replaced,
            composed.outcomes,
            planned.erased,
            self._group,
            moves,
        )

    def _split_too_late(
        self, arrivals: Sequence[tuple[ReceivedRecord, Command]], fences: Mapping[int, int], found: Found
    ) -> tuple[Sequence[tuple[ReceivedRecord, Command]], list[Letter]]:
        """Sort out what was applied so long ago that its outcome is gone: it must not be applied again."""
        oldest_ms = (found.now - self._outcome_retention).timestamp() * 1000
        late = [
            record
            for record, command in arrivals
            if record.offset < fences[record.partition]
            and record.timestamp_ms < oldest_ms
            and command.key not in found.outcomes
        ]
        if not late:
            return arrivals, []
        places = {(record.partition, record.offset) for record in late}
        message = "the command came again after its outcome was deleted; publish it under a new id if it is meant"
        return (
            [pair for pair in arrivals if (pair[0].partition, pair[0].offset) not in places],
            [letter(record, "outcome_expired", message) for record in late],
        )


def _positions_after(decided: Decided | None) -> dict[int, int]:
    """Return where a batch leaves its partitions."""
    return {} if decided is None else {move.partition: move.next_offset for move in decided.writes.moves}
