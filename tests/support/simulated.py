"""Both workers in one thread: the pure rules over dictionaries, with redeliveries, so that the checker has histories.

What the workers' edges do is played here in a few lines; what is right or wrong about a history never comes from here.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from uuid import UUID

from schemas.envelope import Event
from schemas.limits import DEFAULT_LIMITS, Limits
from tests.support.history import HeadRow, History, ItemRow, OutcomeRow, RevisionRow, VersionRow
from tests.support.memory_store import new_versions
from tests.support.workload import RacingClient, run_script
from topics.catalog import CATALOG, Topic
from topics.codec import STRUCTURED_HEADERS, decode, encode
from topics.keys import partition_of
from topics.records import ReceivedRecord, Record
from topics.routing import record_of
from workers.logic.memory.commands import Rules
from workers.logic.memory.conversations import Listing
from workers.logic.memory.items import Item, is_live
from workers.logic.memory.plan import Stored, needed_listings, plan
from workers.logic.variables.simulation import NeedsMemory
from workers.logic.variables.state import ExecutionKey, ExecutionState
from workers.logic.variables.step import ForkSource, RealMemory
from workers.memory import intake as memory_intake
from workers.memory.compose import change_records, compose
from workers.memory.lookup import Found
from workers.memory.store import StoredOutcome
from workers.variables import intake
from workers.variables.decision import Decision, Facts, decide
from workers.variables.parts import before_fork, fork_source, positions_after
from workers.variables.reading import INPUTS
from workers.variables.rows import apply_changes, decode_changes
from workers.variables.store import Known, Refusal
from workers.variables.table import LiveExecution, _total, written_entries

PARTITIONS = 3
_RULES = Rules()
Lane = tuple[Topic, int]


@dataclass
class Simulated:
    """Topics, database and workers. Time goes on by some milliseconds with each record."""

    random: Random
    logs: defaultdict[Lane, list[ReceivedRecord]] = field(default_factory=lambda: defaultdict(list))
    now_ms: int = 1_800_000_000_000
    applied: defaultdict[Lane, int] = field(default_factory=lambda: defaultdict(int))
    history: History = field(default_factory=History)
    states: dict[ExecutionKey, tuple[bytes, dict[str, bytes]]] = field(default_factory=dict)
    revisions: dict[UUID, Known] = field(default_factory=dict)
    inherited: dict[ExecutionKey, list[RevisionRow]] = field(default_factory=dict)
    refusals: dict[tuple[Topic, int, int], Refusal] = field(default_factory=dict)
    items: dict[str, Item] = field(default_factory=dict)
    outcomes: dict[UUID, StoredOutcome] = field(default_factory=dict)
    limits: Limits = DEFAULT_LIMITS

    # -- the broker

    def publish(self, *events: Event) -> None:
        """Publish as a client does; Kafka acknowledges."""
        for event in events:
            record = record_of(event)
            self.send([record])
            self.history.acknowledged.add((record.topic, encode(event)))

    def send(self, records: Iterable[Record]) -> None:
        """Append records to their logs."""
        for record in records:
            partition = record.partition
            if partition is None:
                partition = partition_of(record.key or b"", PARTITIONS)
            self.now_ms += self.random.randint(1, 9)
            log = self.logs[record.topic, partition]
            log.append(
                ReceivedRecord(record.topic, partition, len(log), record.key, record.value, record.headers, self.now_ms)
            )

    @property
    def now(self) -> datetime:
        """The database's clock."""
        return datetime.fromtimestamp(self.now_ms / 1000, UTC)

    def _take(self, topics: Iterable[Topic]) -> list[ReceivedRecord]:
        """Fetch from a random partition; sometimes from before what was applied, as after a crash."""
        records: list[ReceivedRecord] = []
        partition = self.random.randrange(PARTITIONS)
        for topic in topics:
            start = self.applied[topic, partition]
            if self.random.random() < 0.2:
                start = max(0, start - self.random.randrange(6))
            records += self.logs[topic, partition][start : start + self.random.randint(1, 8)]
        return records

    def work(self, batches: int = 1) -> None:
        """Let either worker take some batches."""
        for _ in range(batches):
            if self.random.random() < 0.5:
                self._memory_batch()
            else:
                self._variables_batch()

    def drain(self) -> None:
        """Work until everything is read."""
        while any(len(log) > self.applied[lane] for lane, log in self.logs.items() if lane[0] in _READ):
            self.work()

    # -- the workers

    def _variables_batch(self) -> None:
        records = self._take(INPUTS)
        taken = intake.take_in(records, PARTITIONS)
        positions, _ = positions_after(records, self.applied)
        self.send([letter for _, letter in taken.letters])
        self.send(taken.forwards)
        arrivals: Sequence[intake.Arrival] = taken.arrivals
        while arrivals:
            count = before_fork(arrivals)
            arrivals = [*self._decide(arrivals[:count]), *arrivals[count:]]
        self.applied.update(positions)

    def _decide(self, arrivals: Sequence[intake.Arrival]) -> Sequence[intake.Arrival]:
        """Decide, write and publish; return what is left of it."""
        states, decision = self._decided(arrivals)
        for fork in decision.inherited:
            source = self._rows_of(ExecutionKey(fork.execution.tenant, fork.source_id))[: fork.revisions]
            self.inherited[fork.execution] = [
                row._replace(execution_id=fork.execution.execution_id, revision=fork.before + number, event_key=None)
                for number, row in enumerate(source, start=1)
            ]
        for row in decision.revisions:
            self.revisions[row.event_key] = Known(
                row.event_key, row.digest, row.execution, row.revision, row.body, row.changes, row.outgoing
            )
        for refused in decision.refusals:
            record = refused.record
            self.refusals[record.topic, record.partition, record.offset] = refused
        changelog: list[Record] = []
        for key, changes in decision.changes.items():
            _, entries = self.states.get(key, (None, {}))
            apply_changes(entries, changes.items())
            self.states[key] = states[key].head, entries
            changelog += _changelog(key, states[key], entries, changes)
        self.send([*decision.outgoing(), *(letter for _, letter in decision.letters), *changelog])
        return decision.left

    def _decided(self, arrivals: Sequence[intake.Arrival]) -> tuple[dict[ExecutionKey, ExecutionState], Decision]:
        """Decide; again and again, until simulated runs have all that they ask of real memory."""
        forks = {arrival.key: self._fork(arrival) for arrival in arrivals if fork_source(arrival) is not None}
        memory = RealMemory(_RULES)
        while True:
            states: dict[ExecutionKey, ExecutionState] = {}
            for arrival in arrivals:
                head, entries = self.states.get(arrival.execution, (None, {}))
                states.setdefault(arrival.execution, ExecutionState.load(arrival.execution, head, entries))
            facts = Facts(self.now, self.limits, self.revisions, self.refusals, states, forks, memory)
            try:
                return states, decide(arrivals, facts)
            except NeedsMemory as needs:
                asked = {address: self.items.get(address, Item(address)) for address in needs.addresses}
                memory = RealMemory(_RULES, {**memory.items, **asked})

    def _fork(self, arrival: intake.Arrival) -> ForkSource:
        source = fork_source(arrival)
        assert source is not None, "asked for forks only"
        key, revision = source
        rows = self._rows_of(key)
        entries: dict[str, bytes] = {}
        for row in rows[:revision]:
            apply_changes(entries, decode_changes(row.changes))
        return ForkSource(entries, found=revision <= len(rows))

    def _rows_of(self, key: ExecutionKey) -> list[RevisionRow]:
        own = [_row(known) for known in self.revisions.values() if known.execution == key]
        return sorted([*own, *self.inherited.get(key, ())], key=lambda row: row.revision)

    def _memory_batch(self) -> None:
        taken = memory_intake.take_in(self._take([Topic.MEMORY_COMMANDS]), _RULES)
        self.now_ms += 1
        known = {key: outcome.digest for key, outcome in self.outcomes.items()}
        prefixes = needed_listings(command for _, command in taken.arrivals)
        stored = Stored(self.items, known, listings={prefix: self._listing(prefix) for prefix in prefixes})
        planned = plan((command for _, command in taken.arrivals), stored, now=self.now, rules=_RULES)
        composed = compose(taken.arrivals, planned, Found(self.now, self.outcomes, stored.items))
        self.items.update(planned.items)
        for version in new_versions(planned):
            self.history.versions.append(
                VersionRow(version.address, version.version, version.value, version.command_key)
            )
        for outcome in composed.outcomes:
            self.outcomes[outcome.command_key] = outcome
        letters = [letter.record for letter in (*taken.letters, *composed.committed.letters)]
        self.send([*composed.committed.outgoing, *letters])
        # A copy of an older command may have come after a newer change: the worker looks, and shows the newest last.
        for address, shown in composed.committed.changed.items():
            newest = self.items[address]
            if newest.sequence > shown.sequence:
                self.send(change_records(newest))
        for partition, position in taken.positions.items():
            lane = Topic.MEMORY_COMMANDS, partition
            self.applied[lane] = max(self.applied[lane], position)

    def _listing(self, prefix: str) -> Listing:
        records = [item for item in self.items.values() if item.address.startswith(prefix) and is_live(item, self.now)]
        return Listing(records, len(records))

    # -- the record of it

    def recorded(self) -> History:
        """Return the history at rest."""
        history = self.history
        history.limits = self.limits
        for spec in CATALOG:
            lanes = [(spec.topic, partition) for partition in range(PARTITIONS)]
            history.logs[spec.topic] = [record for lane in lanes for record in self.logs[lane]]
            for lane in lanes:
                history.log_ends[lane] = len(self.logs[lane])
                worker = "memory" if spec.topic is Topic.MEMORY_COMMANDS else "variables"
                history.applied[worker, *lane] = self.applied[lane]
                history.committed[worker, *lane] = self.applied[lane]
        history.items = [
            ItemRow(item.address, item.version, item.sequence, item.erased_version, item.value, item.expires_at)
            for item in self.items.values()
        ]
        history.outcomes = [OutcomeRow(o.command_key, o.outcome, o.conflict) for o in self.outcomes.values()]
        history.revisions = [_row(known) for known in self.revisions.values()]
        history.revisions += [row for rows in self.inherited.values() for row in rows]
        for key, (head, entries) in self.states.items():
            state = ExecutionState.load(key, head, entries)
            history.heads.append(HeadRow(key.tenant, key.execution_id, state.revision, state.status, head))
        return history


_READ = (*INPUTS, Topic.MEMORY_COMMANDS)


def _row(known: Known) -> RevisionRow:
    key = known.execution
    return RevisionRow(
        key.tenant, key.execution_id, known.revision, known.key, known.body, known.changes, known.outgoing
    )


def _changelog(
    key: ExecutionKey, state: ExecutionState, entries: dict[str, bytes], changes: dict[str, bytes | None]
) -> list[Record]:
    partition = partition_of(key.execution_id.encode(), PARTITIONS)
    live = LiveExecution(state.revision, state.head, state.ended, _total(entries))
    return written_entries(partition, key, [*changes.items(), ("", live.packed_head())])


def simulate(
    seed: int, *, clients: int = 4, commands: int = 60, runs: int = 6, limits: Limits = DEFAULT_LIMITS
) -> Simulated:
    """Play a whole run with racing clients, runs published in one go, duplicates, misplaced and bad records."""
    random = Random(seed)
    system = Simulated(random, limits=limits)
    racing = [RacingClient(f"client-{number}", random) for number in range(clients)]
    waiting: dict[str, RacingClient] = {}
    started: list[str] = []
    sent: list[Event] = []
    while racing or waiting or len(started) < runs:
        for client in [client for client in racing if client not in waiting.values()]:
            command = client.next_command()
            waiting[command.id] = client
            sent.append(command)
            system.publish(command)
            if client.count >= commands:
                racing.remove(client)
        if len(started) < runs and random.random() < 0.2:
            execution_id = f"run-{len(started)}"
            begun = [run for run in started if ExecutionKey("default", run) in system.states]
            script = run_script(execution_id, random, earlier=begun)
            started.append(execution_id)
            sent += script
            system.publish(*script)
        if sent and random.random() < 0.3:
            system.publish(random.choice(sent))
        if sent and random.random() < 0.1:
            event = random.choice([event for event in sent if event.subject is not None] or [sent[0]])
            record = record_of(event)
            system.send([Record(record.topic, None, record.value, record.headers, random.randrange(PARTITIONS))])
        system.work(random.randint(1, 4))
        _hand_out(system, waiting)
    system.drain()
    return system


def _hand_out(system: Simulated, waiting: dict[str, RacingClient]) -> None:
    for outcome in list(system.outcomes.values()):
        event = decode(outcome.outcome)
        client = waiting.pop(str(event.data["command_id"]), None)
        if client is not None:
            client.take(event)


def plant_bad(system: Simulated, topic: Topic, value: bytes, code: str, key: bytes | None = None) -> None:
    """Publish what must become a dead letter with that code."""
    system.history.bad[topic, value] = code
    system.send([Record(topic, key, value, STRUCTURED_HEADERS, 0 if key is None else None)])
