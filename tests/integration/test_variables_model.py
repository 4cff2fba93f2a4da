"""Random runs through Kafka, PostgreSQL and a worker that is killed: every revision is what the simple model says."""

from collections import defaultdict
from collections.abc import Mapping
from random import Random
from typing import Any
from uuid import UUID

from schemas.envelope import Event
from schemas.identity import key_of
from tests.support.edge import Edge, outcome
from tests.support.model import Model
from tests.support.model_order import Frame
from tests.support.model_view import frame_at, frame_of, said, scratchpad, variables
from tests.support.random_runs import RandomRun
from topics.catalog import Topic
from topics.codec import decode
from workers.logic.variables.state import ExecutionKey, ExecutionState
from workers.runtime.postgres import Database
from workers.variables import history
from workers.variables.history import RevisionDetail
from workers.variables.reading import INPUTS

RUNS = 30
SEED = 20261201


async def test_random_runs_through_kafka_are_what_the_model_says(variables: Edge) -> None:
    random = Random(SEED)
    runs = begun(random)
    worker = await variables.start_worker(batch_size="40")
    await publish(variables, runs, random)
    await variables.drained()
    await worker.kill()
    more, forks = going_on(runs, random, await newest(variables))
    await variables.start_worker(batch_size="40")
    await publish(variables, more, random)
    await answer_commands(variables, random)

    events = {key_of(event): event for topic in INPUTS for event in await events_in(variables, topic)}
    stored = await revisions(variables)
    updates = await updates_of(variables)
    models: dict[tuple[str, int], Model] = {}
    for name in [*(name for name in stored if name not in forks), *forks]:
        model = models[forks[name]].forked(name) if name in forks else Model(name)
        for at, copy in compare(model, stored[name], events, updates[name]).items():
            models[name, at] = copy
    await nothing_is_left_out(variables, events, stored)
    assert len(stored) > RUNS
    assert sum(map(len, stored.values())) > RUNS * 25


def begun(random: Random) -> list[RandomRun]:
    """Return runs as far as they get before the worker is killed: some of them are not even started."""
    runs = [RandomRun(f"run-{number}", random) for number in range(RUNS)]
    for run in runs:
        run.go_on(random.choice([0, 0, 0, 3]))
        if random.random() < 0.8:
            run.start()
        run.go_on(random.randint(5, 15))
    return runs


def going_on(
    runs: list[RandomRun], random: Random, reached: Mapping[str, int]
) -> tuple[list[RandomRun], dict[str, tuple[str, int]]]:
    """Return how the runs go on, with children and forks; and what the forks begin with."""
    forks: dict[str, tuple[str, int]] = {}
    found: list[RandomRun] = []
    for run in runs:
        run.events, told = run.events[:], len(run.events)
        if not any(event.type == "execution.started" for _, event in run.events):
            run.start()
        run.go_on(random.randint(5, 15))
        run.end()
        run.go_on(random.choice([0, 2]))
        found += [run.child(*child) for child in run.children]
        run.events = run.events[told:]
        if random.random() < 0.3:
            fork = RandomRun(f"{run.execution_id}-fork", random)
            source = forks[fork.execution_id] = run.execution_id, random.randint(1, reached[run.execution_id])
            fork.start(forked_from={"execution_id": source[0], "revision": source[1]})
            fork.go_on(8)
            fork.end()
            # In one topic: what overtakes a fork's start is another story.
            fork.events = [(Topic.EXECUTION_EVENTS, event) for _, event in fork.events]
            found.append(fork)
    return [*runs, *found], forks


async def publish(found: Edge, runs: list[RandomRun], random: Random) -> None:
    """Publish the runs mixed, each in its order, some events twice."""
    left = [list(run.events) for run in runs]
    mixed: list[tuple[Topic, Event]] = []
    while any(left):
        events = random.choice([events for events in left if events])
        mixed.append(events.pop(0))
        mixed += [random.choice(mixed)] if random.random() < 0.05 else []
    for topic in (Topic.EXECUTION_EVENTS, Topic.ACTIVITY_OUTPUTS):
        await found.publish([event for place, event in mixed if place is topic], topic)


async def answer_commands(found: Edge, random: Random) -> None:
    """Be the memory worker, until no command is left."""
    answered: set[str] = set()
    while True:
        await found.drained()
        commands = {event.id: event for event in await events_in(found, Topic.MEMORY_COMMANDS)}
        new = [command for command in commands.values() if command.id not in answered]
        if not new:
            return
        answered.update(commands)
        await found.publish([answer(command, random) for command in new], Topic.MEMORY_RESULTS)


def answer(command: Event, random: Random) -> Event:
    until = {"expires_at": "2027-01-01T00:00:00Z"}
    found = {"value": [1, {"n": 3}], "type": "Json", "version": 4, "written_at": "2026-12-01T00:00:00Z", **until}
    said: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "memory.read": [("memory.missing", {"version": 0}), *([("memory.found", found)] * 2)],
        "memory.write": [
            ("memory.conflicted", {"expected_version": 3, "current_version": 4}),
            *([("memory.written", {"version": 5, **until})] * 2),
        ],
        "memory.update": [("memory.updated", {"version": 6, "value": [7], **until})],
    }
    rejected = ("memory.rejected", {"code": "type_mismatch", "message": "m"})
    kind, body = random.choice([rejected, *said[command.type]])
    return outcome(command, kind, **body)


# -- what came of it


async def events_in(found: Edge, topic: Topic) -> list[Event]:
    return [record.event for record in await found.read(topic)]


async def newest(found: Edge) -> dict[str, int]:
    return {name: rows[-1].revision for name, rows in (await revisions(found)).items()}


async def revisions(found: Edge) -> dict[str, list[RevisionDetail]]:
    async with Database.from_settings(found.settings, "test") as database, database.session() as connection:
        listed = await history.list_executions(connection, "default", limit=1000)
        names = sorted(summary.key.execution_id for summary in listed)
        keys = [ExecutionKey("default", name) for name in names]
        return {key.execution_id: await history.revisions(connection, key, limit=10_000) for key in keys}


async def updates_of(found: Edge) -> dict[str, dict[int, Event]]:
    updates: defaultdict[str, dict[int, Event]] = defaultdict(dict)
    for event in await events_in(found, Topic.VARIABLE_UPDATES):
        if event.type == "variables.revised":
            updates[str(event.subject)].setdefault(int(str(event.data["revision"])), event)
    return updates


def compare(
    model: Model, stored: list[RevisionDetail], events: Mapping[UUID, Event], updates: Mapping[int, Event]
) -> dict[int, Model]:
    """Apply what made each revision to the model, and compare; return the model at each revision."""
    key = ExecutionKey("default", model.execution_id)
    entries: dict[str, bytes] = {}
    asked: dict[str, tuple[str, Frame]] = {}
    seen: dict[Frame, dict[str, Any]] = {}
    copies: dict[int, Model] = {}
    assert [row.revision for row in stored] == list(range(1, len(stored) + 1))
    assert list(updates) == [row.revision for row in stored if row.event_key is not None]
    for row in stored:
        for entry, data in row.changes.items():
            entries.pop(entry, None) if data is None else entries.__setitem__(entry, data)
        if row.event_key is None:
            continue
        event = events[row.event_key]
        asked[str(row.event_key)] = (event.id, frame_of(event.data))
        about = event.data
        if "command_id" in about:
            about = {**about, "asked_by": asked[str(about["command_id"])][0]}
        expected = model.apply(Event(id=event.id, source="", type=event.type, data=about))
        place = f"{model.execution_id} revision {row.revision}: {event.type} {event.id}"

        answers = [said(decode(record.value), asked) for record in row.outgoing]
        assert answers == expected, place
        state = ExecutionState.load(key, None, entries)
        mine = {frame: names for frame, names in model.scopes.items() if names}
        assert variables(state, entries) == mine, place
        assert scratchpad(state, entries) == {name: values for name, values in model.pads.items() if values}, place
        assert model.revision == row.revision, place
        follow(seen, updates[row.revision])
        assert {frame: names for frame, names in seen.items() if names} == mine, place
        copies[row.revision] = model.copy()
    return copies


def follow(seen: dict[Frame, dict[str, Any]], revised: Event) -> None:
    """Be a reader of `variable-updates`: apply the writes of a revision to a copy of the store."""
    writes: Any = revised.data["writes"]
    for write in writes:
        *way, name = write["path"].split(".")
        if way[:1] == ["memory"]:
            continue
        place = seen.setdefault(frame_at(write.get("frame", "")), {})
        for part in way:
            place[part] = dict(place[part]) if isinstance(place.get(part), dict) else {}
            place = place[part]
        if write.get("removed"):
            place.pop(name, None)
        else:
            place[name] = write["value"]


async def nothing_is_left_out(
    found: Edge, events: Mapping[UUID, Event], stored: Mapping[str, list[RevisionDetail]]
) -> None:
    """Every event made a revision, or is a dead letter that says why."""
    applied = {row.event_key for rows in stored.values() for row in rows}
    letters = {str(letter.data["code"]) for letter in await events_in(found, Topic.DEAD_LETTERS)}
    left = [event for key, event in events.items() if key not in applied]
    assert {event.type for event in left} <= {"variables.set"}
    assert letters <= {"target_not_an_object"}
    assert bool(left) == bool(letters)
