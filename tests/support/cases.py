"""A permit office: cases that share people, so that their runs race; and the facts that must hold afterwards.

The input is made here, or read from any file of the same shape: each case is an execution, each step an
activity output, a read and a conditional write of the person's `last-case`, and an increment of `handled`.
"""

import asyncio
import gzip
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import asyncpg

from schemas.envelope import Event
from schemas.exact_json import JsonObject, JsonValue, loads
from topics.catalog import Topic
from topics.codec import decode, encode
from topics.connection import KafkaConnection
from topics.groups import extents
from topics.subscriber import Received, Subscriber

SOURCE = "/office"
_STEPS = ("receipt", "check-receipt", "send-receipt", "deadline", "inspect", "decide", "publish")
_OUTCOMES = ("memory.written", "memory.conflicted")


def make_events(cases: int, people: int, seed: int) -> list[Event]:
    """Make the log of an office: cases overlap in time, and steps of one case may have different people."""
    rng = random.Random(seed)
    open_cases: dict[str, int] = {}
    waiting = [f"case-{number}" for number in range(cases)]
    events: list[Event] = []

    def say(case: str, event_type: str, data: JsonObject) -> None:
        events.append(Event(id=f"{case}-{len(events)}", source=SOURCE, type=event_type, subject=case, data=data))

    while waiting or open_cases:
        if waiting and (len(open_cases) < 2 * people or not open_cases):
            case = waiting.pop(0)
            open_cases[case] = rng.randint(1, len(_STEPS))
            say(case, "execution.started", {"workflow": {"name": "permit", "version": "1"}, "input": {"case": case}})
            continue
        case = rng.choice(list(open_cases))
        person = f"person-{min(rng.randrange(people), rng.randrange(people))}"
        step = f"{_STEPS[open_cases[case] - 1]}-{rng.randrange(3)}"
        item: JsonObject = {"scope": "shared", "subject": {"kind": "resource", "id": person}}
        last: JsonObject = {**item, "key": "last-case", "type": "String"}
        say(
            case,
            "activity.completed",
            {
                "activity_id": step,
                "output": {"instance": f"task-{len(events)}", "by": person},
                "output_mapping": {"last_step": f"{{{{{step}.instance}}}}"},
            },
        )
        say(case, "memory.read", {"node_id": "seen", **last})
        say(
            case,
            "memory.write",
            {
                "node_id": "mark",
                **last,
                "value": "{{system.execution_id}}",
                "expected_version": "{{seen.version}}",
            },
        )
        say(
            case,
            "memory.update",
            {"node_id": "count", **item, "key": "handled", "type": "Integer", "operation": "increment", "by": 1},
        )
        open_cases[case] -= 1
        if not open_cases[case]:
            del open_cases[case]
            say(case, "execution.completed", {"output": {"last": "{{last_step}}"}})
    return events


def read_events(path: Path) -> list[Event]:
    """Read a log of the same shape."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
        return [decode(line) for line in lines]


def write_events(path: Path, events: Iterable[Event]) -> None:
    """Write events as `tally publish` reads them."""
    path.write_bytes(b"".join(encode(event) + b"\n" for event in events))


@dataclass(frozen=True)
class Facts:
    """What follows from the input alone."""

    executions: frozenset[str]
    handled: Mapping[str, int]
    writes: int
    last_step: Mapping[str, str]
    inputs: Mapping[str, int]


def facts_of(events: Sequence[Event]) -> Facts:
    """Derive the facts that must hold however often, and in whatever storm, `events` were published."""
    handled: Counter[str] = Counter()
    last_step: dict[str, str] = {}
    inputs: Counter[str] = Counter()
    writes = 0
    for event in events:
        case = cast("str", event.subject)
        inputs[case] += 1
        match event.type:
            case "memory.update":
                handled[cast("dict[str, str]", event.data["subject"])["id"]] += 1
            case "memory.write":
                writes += 1
            case "activity.completed":
                last_step[case] = cast("dict[str, str]", event.data["output"])["instance"]
    return Facts(frozenset(inputs), handled, writes, last_step, inputs)


@dataclass
class Observed:
    """What the topics and PostgreSQL say. Every delivery is in `deliveries`, by event id."""

    deliveries: dict[tuple[Topic, str], set[bytes]] = field(default_factory=lambda: defaultdict(set))
    outcomes: dict[str, Event] = field(default_factory=dict)
    conflicts: dict[str, Event] = field(default_factory=dict)
    revisions: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    finalized: dict[str, Event] = field(default_factory=dict)
    dead_letters: list[Event] = field(default_factory=list)
    records: int = 0


async def observe(connection: KafkaConnection) -> Observed:
    """Read everything that was published."""
    observed = Observed()
    topics = (
        Topic.MEMORY_RESULTS,
        Topic.MEMORY_CONFLICTS,
        Topic.VARIABLE_UPDATES,
        Topic.NODE_RESULTS,
        Topic.DEAD_LETTERS,
    )
    async with Subscriber(connection, topics, start="beginning") as subscriber:
        async for received in subscriber.until_end():
            _note(received, observed)
    return observed


def _note(received: Received, observed: Observed) -> None:
    event, record = received.event, received.record
    assert event is not None
    assert record.value is not None
    observed.records += 1
    first = (record.topic, event.id) not in observed.deliveries
    observed.deliveries[record.topic, event.id].add(record.value)
    match event.type:
        case "memory.conflict_detected":
            observed.conflicts[event.id] = event
        case "variables.revised" if first:
            observed.revisions[cast("str", event.subject)].append(cast("int", event.data["revision"]))
        case "execution.finalized":
            observed.finalized[cast("str", event.subject)] = event
        case "record.dead_lettered":
            observed.dead_letters.append(event)
        case _ if record.topic is Topic.MEMORY_RESULTS:
            observed.outcomes[event.id] = event


async def broken_facts(facts: Facts, connection: KafkaConnection, dsn: str) -> list[str]:
    """Return every fact that does not hold, in words; none is what must come back."""
    observed = await observe(connection)
    items, statuses, stored = await _stored(dsn)
    broken: list[str] = []

    def holds(what: str, expected: object, found: object) -> None:
        if expected != found:
            broken.append(f"{what}: expected {expected!r:.200}, found {found!r:.200}")

    kinds = Counter(event.type for event in observed.outcomes.values())
    holds("written + conflicted", facts.writes, kinds["memory.written"] + kinds["memory.conflicted"])
    holds("increments", sum(facts.handled.values()), kinds["memory.updated"])
    holds("reads", facts.writes, kinds["memory.found"] + kinds["memory.missing"])
    handled = {person: value for (person, key), (value, _) in items.items() if key == "handled"}
    holds("handled counters", dict(facts.handled), handled)
    written: Counter[str] = Counter(
        cast("str", event.data["address"]) for event in observed.outcomes.values() if event.type == "memory.written"
    )
    versions = {person: version for (person, key), (_, version) in items.items() if key == "last-case"}
    holds("versions of last-case", {address.split("/")[4]: count for address, count in written.items()}, versions)
    refused = [event for event in observed.conflicts.values() if event.data["kind"] == "conditional_write"]
    holds("conflict events", kinds["memory.conflicted"], len(refused))
    holds(
        "conflicts with oneself",
        [],
        [event.id for event in refused if _writer(event, "current") == _writer(event, "attempted")],
    )
    holds("completed executions", dict.fromkeys(facts.executions, "completed"), statuses)
    holds("finalized executions", facts.executions, frozenset(observed.finalized))
    last = {
        case: cast("JsonObject", event.data["output"] or {}).get("last") for case, event in observed.finalized.items()
    }
    holds("`last` of each finalized execution", dict(facts.last_step), last)
    for case, revisions in observed.revisions.items():
        holds(f"revisions of {case}", list(range(1, len(revisions) + 1)), sorted(revisions))
        holds(f"stored revisions of {case}", stored.get(case), len(revisions))
    holds("dead letters", [], [event.data["message"] for event in observed.dead_letters])
    changed = [key for key, bodies in observed.deliveries.items() if len(bodies) > 1]
    holds("events that differ between deliveries", [], changed)
    return broken


def _writer(event: Event, side: str) -> JsonValue:
    shown = cast("JsonObject", event.data[side])
    return cast("JsonObject", shown["writer"]).get("execution_id")


async def _stored(dsn: str) -> tuple[dict[tuple[str, str], tuple[JsonValue, int]], dict[str, str], dict[str, int]]:
    connection = await asyncpg.connect(dsn, timeout=30)
    try:
        rows = await connection.fetch("SELECT address, version, value FROM memory_items")
        executions = await connection.fetch("SELECT execution_id, status FROM executions")
        revisions = await connection.fetch("SELECT execution_id, count(*) AS n FROM revisions GROUP BY execution_id")
    finally:
        await connection.close(timeout=10)
    items = {
        (row["address"].split("/")[4], row["address"].split("/")[5]): (loads(row["value"]), row["version"])
        for row in rows
    }
    return (
        items,
        {row["execution_id"]: row["status"] for row in executions},
        {row["execution_id"]: row["n"] for row in revisions},
    )


async def settle(connection: KafkaConnection, dsn: str, *, timeout_s: float = 600, quiet_s: float = 5.0) -> None:
    """Wait until the workers have applied all there is, and nothing new has come for a while.

    Positions are read where the workers commit: not every broker tells those of a group. `quiet_s` must be longer
    than a killed worker's successor needs to publish what was committed before the kill.
    """
    inputs = (Topic.EXECUTION_EVENTS, Topic.ACTIVITY_OUTPUTS, Topic.MEMORY_RESULTS, Topic.MEMORY_COMMANDS)
    clock = asyncio.get_running_loop().time
    quiet_since = clock()
    before: object = None
    database = await asyncpg.connect(dsn, timeout=30)
    try:
        async with asyncio.timeout(timeout_s):
            while clock() - quiet_since < quiet_s:
                kept = await extents(connection, inputs)
                rows = await database.fetch("SELECT topic, partition, next_offset FROM consumer_positions")
                applied = {(row["topic"], row["partition"]): row["next_offset"] for row in rows}
                ends = {place: end for place, (_, end) in kept.items() if end}
                # The embedded broker's ends fall behind what it hands out: there the positions must come to rest.
                waits = any(end > applied.get((topic.value, partition), 0) for (topic, partition), end in ends.items())
                if waits or (ends, applied) != before:
                    quiet_since, before = clock(), (ends, applied)
                await asyncio.sleep(0.3)
    finally:
        await database.close(timeout=10)
