"""`tally demo`: a race between two runs of one patient, and a small permit case, on a stack of its own."""

import asyncio
from collections.abc import Callable, Sequence
from importlib.resources import files
from time import monotonic
from typing import cast

from rich.panel import Panel

from schemas.envelope import Event
from schemas.exact_json import JsonObject
from schemas.executions import ExecutionFinalized
from schemas.memory import MemoryConflictDetected
from topics.catalog import Topic
from topics.client import Client
from topics.codec import decode
from topics.connection import KafkaConnection
from topics.subscriber import Subscriber
from workers.cli.app import app, run
from workers.cli.conflict_view import conflict_rows
from workers.cli.database import reading
from workers.cli.item_views import name_of
from workers.cli.local import local_stack
from workers.cli.output import complain, console, say, short, show_table
from workers.cli.revision_views import show_revisions
from workers.cli.worker import WORKERS
from workers.logic.variables.state import ExecutionKey
from workers.settings import Settings
from workers.variables import history

_TIMEOUT_S = 30.0
_CLINIC = "/engines/clinic"
_PERMITS = "/engines/permits"
_CASE = "case-891"


@app.command("demo")
def demo() -> None:
    """Show it in a few seconds: start everything, let two runs race, play a permit case, stop everything."""
    run(_demo())


async def _demo() -> None:
    started = monotonic()

    def progress(line: str) -> None:
        complain(f"{monotonic() - started:5.1f} s  {line}")

    progress("starting a broker, PostgreSQL and the workers")
    async with local_stack(list(WORKERS), progress) as local:
        await local.unless_a_part_ends(_play_both(local.settings, progress))
        progress("stopping everything")
    progress("nothing is left running")
    say("")
    say("Next: `tally up` runs it until Ctrl-C; `tally publish FILE.jsonl` plays your own events.", "bold")
    say("In a clone `tally` is `.venv/bin/tally`, and `make up` is `tally up`.", "bold")


async def _play_both(settings: Settings, progress: Callable[[str], None]) -> None:
    await _race(settings.kafka(), progress)
    await _permit(settings.kafka(), settings, progress)


def events_of(name: str) -> list[Event]:
    """Return the events of one of the demo's files, in order."""
    text = (files("workers.cli") / "demo" / f"{name}.jsonl").read_bytes()
    return [decode(line) for line in text.splitlines() if line]


async def _race(kafka: KafkaConnection, progress: Callable[[str], None]) -> None:
    """Two runs of one patient read version 1; both write on condition that it is still there."""
    async with (
        Client(kafka, source=_CLINIC, timeout_s=_TIMEOUT_S) as client,
        Subscriber(kafka, [Topic.MEMORY_CONFLICTS]) as races,
    ):
        await _play(client, "1-first-result", ["run-lab-39-write"])
        reads = await _play(client, "2-both-read", ["run-lab-40-read", "run-lab-41-read"])
        progress("both runs have read the patient's last creatinine; now both write")
        writes = await _play(client, "3-both-write", ["run-lab-40-write", "run-lab-41-write"])
        conflict = await _first_conflict(races)
    console().print(
        Panel.fit(
            "Two lab results of patient P-4711 arrive together. Each run reads the last creatinine, compares,\n"
            "and writes its own, but only if nobody else wrote meanwhile: expected_version = {{precedente.version}}.",
            title="1. A race",
            title_align="left",
        )
    )
    rows = [
        (str(read.subject), _output(read, "version"), _verdict(write))
        for read, write in zip(reads, writes, strict=True)
    ]
    show_table(None, ("run", "read version", "its write"), rows)
    say("")
    say(f"memory.conflict_detected on {conflict.address}", "bold")
    show_table(None, ("", "version", "value", "writer"), conflict_rows(conflict))
    winner = name_of(None if conflict.current is None else conflict.current.writer)
    loser = name_of(conflict.attempted.writer)
    say(f"{winner} won; {loser} knows it lost, and nothing was overwritten.", "green")


async def _permit(kafka: KafkaConnection, settings: Settings, progress: Callable[[str], None]) -> None:
    """One case: mapped outputs, bound inputs, a condition, a counter; then its history."""
    async with (
        Client(kafka, source=_PERMITS, timeout_s=_TIMEOUT_S) as client,
        Subscriber(kafka, [Topic.VARIABLE_UPDATES]) as updates,
    ):
        bound, evaluated, counted = await _play(client, "4-permit", [f"{_CASE}-{n}" for n in (3, 5, 6)])
        final = await _end_of(updates, _CASE)
    progress("the permit case is finished")
    async with reading(settings) as connection:
        revisions = await history.revisions(connection, ExecutionKey("default", _CASE))
    say("")
    console().print(
        Panel.fit(
            "A permit case: outputs are mapped to names, references are bound, a condition is evaluated,\n"
            "a shared counter is incremented. Every event made one revision, and each can be looked at again.",
            title="2. A case",
            title_align="left",
        )
    )
    say(f"inputs of check-fee   {short(bound.data['inputs'])}")
    say(f"condition complete    {short(evaluated.data['result'])}")
    say(f"cases of Resource26   {_output(counted, 'value')}")
    say(f"output of the case    {short(final.output)}")
    say("")
    show_revisions(revisions)


async def _play(client: Client, name: str, awaited: Sequence[str]) -> list[Event]:
    """Publish a file and return the answers to some of its events."""
    await client.publish(*events_of(name))
    return [await client.await_outcome(event_id) for event_id in awaited]


async def _first_conflict(races: Subscriber) -> MemoryConflictDetected:
    async with asyncio.timeout(_TIMEOUT_S):
        async for received in races:
            return cast("MemoryConflictDetected", received.data)
    raise AssertionError("a subscription has no end")


async def _end_of(updates: Subscriber, execution_id: str) -> ExecutionFinalized:
    async with asyncio.timeout(_TIMEOUT_S):
        async for received in updates:
            if received.event is not None and received.event.subject == execution_id:
                data = received.data
                if isinstance(data, ExecutionFinalized):
                    return data
    raise AssertionError("a subscription has no end")


def _output(answer: Event, name: str) -> str:
    return short(cast("JsonObject", answer.data["outputs"]).get(name))


def _verdict(write: Event) -> str:
    outputs = cast("JsonObject", write.data["outputs"])
    if outputs.get("conflict"):
        return f"conflict: version {short(outputs['current_version'])} is there already"
    return f"written as version {short(outputs['version'])}"
