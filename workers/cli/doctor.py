"""`tally doctor`: is all well? What is down, what is missing, who lags, and what to do."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import typer
from rich.text import Text

from schemas.errors import DependencyDown
from topics.catalog import CATALOG, Topic
from topics.groups import extents, first_record, members
from workers.cli.app import ExitCode, app, run
from workers.cli.database import reading
from workers.cli.options import Json
from workers.cli.output import complain, console, show_json
from workers.cli.topics_commands import check_topics
from workers.runtime.migrations import missing_migrations
from workers.runtime.positions import applied_positions, deleted_unread
from workers.runtime.server import HeldUp, ServerState, held_up, server_state
from workers.settings import Settings, read_settings

#: What each worker reads, by its name; its consumer group is the prefix and the name.
_INPUTS: Mapping[str, tuple[Topic, ...]] = {
    "variables": (Topic.EXECUTION_EVENTS, Topic.ACTIVITY_OUTPUTS, Topic.MEMORY_RESULTS),
    "memory": (Topic.MEMORY_COMMANDS,),
}
Lane: TypeAlias = tuple[Topic, int]
#: Longer than a worker that is well takes for its next batch.
_PATIENCE_S = 5.0
_PAUSE_S = 0.25
_STYLES = {"ok": "green", "note": "yellow", "down": "bold red"}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One thing that was looked at. `remedy` says what to do about it."""

    name: str
    state: Literal["ok", "note", "down"]
    what: str
    remedy: str = ""


@app.command("doctor")
def doctor(*, json: Json = False) -> None:
    """Look at everything that is needed: broker, topics, PostgreSQL, schema, workers, backlog, dead letters.

    Exit 3 when something is down. Example: `tally doctor && ./start-engine`
    """
    found = run(diagnose(read_settings()))
    if json:
        show_json([{"name": d.name, "state": d.state, "what": d.what, "what_to_do": d.remedy} for d in found])
    else:
        for diagnosis in found:
            line = Text()
            line.append(f"{diagnosis.state:<5}", style=_STYLES[diagnosis.state])
            line.append(f"{diagnosis.name:<18} {diagnosis.what}")
            if diagnosis.remedy:
                line.append(f" -> {diagnosis.remedy}", style="bold")
            console().print(line, soft_wrap=True)
    down = [diagnosis.name for diagnosis in found if diagnosis.state == "down"]
    if down:
        complain(f"tally: not well: {', '.join(down)}; see what to do above")
        raise typer.Exit(ExitCode.DOWN)


async def diagnose(settings: Settings) -> list[Diagnosis]:
    """Look at everything; what cannot be reached is a finding, not an error."""
    found = [*await _found(_kafka, settings, "kafka"), *await _found(_postgres, settings, "postgresql")]
    if all(diagnosis.state != "down" for diagnosis in found):
        for worker, inputs in _INPUTS.items():
            found += await _worker(settings, worker, inputs)
        found += await _found(_dead_letters, settings, "dead letters")
    return found


async def _found(
    look: Callable[[Settings], Awaitable[list[Diagnosis]]], settings: Settings, name: str
) -> list[Diagnosis]:
    try:
        return await look(settings)
    except DependencyDown as down:
        return [Diagnosis(name, "down", str(down))]


async def _kafka(settings: Settings) -> list[Diagnosis]:
    findings = await check_topics(settings)
    found = [Diagnosis("kafka", "ok", f"{settings.kafka_bootstrap_servers} answers")]
    missing = [finding for finding in findings if finding.what == "is missing"]
    if len(missing) == len(CATALOG):
        return [*found, Diagnosis("topics", "down", "none exists", "run `tally topics create`")]
    found += [
        Diagnosis(finding.topic.value, "down" if finding.error else "note", finding.what, finding.remedy)
        for finding in findings
    ]
    if not findings:
        found.append(Diagnosis("topics", "ok", f"all {len(CATALOG)} are as the catalog says"))
    return found


async def _postgres(settings: Settings) -> list[Diagnosis]:
    async with reading(settings) as connection:
        state = await server_state(connection)
        held = await held_up(connection, [f"tally-{worker}" for worker in _INPUTS])
        # Last: whoever holds up the workers may hold up this too.
        missing = [] if held else await missing_migrations(connection)
    found = [_server(state, held)]
    if not state.durable:
        found.append(
            Diagnosis(
                "postgresql", "note", "may lose what was committed and published", "set fsync=on, full_page_writes=on"
            )
        )
    if missing:
        return [*found, Diagnosis("schema", "down", f"lacks {', '.join(missing)}", "run `tally migrate`")]
    return [*found, Diagnosis("schema", "ok", "is up to date")]


def _server(state: ServerState, held: HeldUp | None) -> Diagnosis:
    if state.standby:
        return Diagnosis("postgresql", "down", "is a standby", "point TALLY_POSTGRES_DSN to the primary")
    if state.read_only:
        return Diagnosis("postgresql", "down", "is read-only", "set default_transaction_read_only=off, and reconnect")
    if held:
        return Diagnosis(
            "postgresql",
            "down",
            f"session {held.holder} ({held.holder_name}) has held up {held.worker} for {held.seconds} s",
            f"wait for its end, or end it: SELECT pg_terminate_backend({held.holder})",
        )
    return Diagnosis("postgresql", "ok", "answers")


async def _dead_letters(settings: Settings) -> list[Diagnosis]:
    """Count what is on the topic: a bad event is its publisher's matter, not a fault of this system."""
    count = sum(end - first for first, end in (await extents(settings.kafka(), [Topic.DEAD_LETTERS])).values())
    if count == 0:
        return [Diagnosis("dead letters", "ok", "there are none")]
    return [Diagnosis("dead letters", "note", f"{count} in the topic", "see `tally dead-letters list`")]


async def _worker(settings: Settings, name: str, inputs: Sequence[Topic]) -> list[Diagnosis]:
    """Count the members of a worker's group, and the records that it has not applied yet."""
    group = f"{settings.topic_prefix}{name}"
    try:
        count = (await members(settings.kafka(), [group]))[group]
        kept = await extents(settings.kafka(), inputs)
        applied = await _applied(settings, group)
        # A position beyond the end is of an earlier topic: nothing of this one is applied yet.
        waiting = {
            lane: position
            for lane, (first, end) in kept.items()
            if (position := max(first, min(applied.get(lane, 0), end))) < end
        }
        stuck = await _stuck_at(settings, group, applied, waiting) if count and waiting else None
    except DependencyDown as down:
        return [Diagnosis(f"worker {name}", "down", str(down))]
    backlog = sum(kept[lane][1] - position for lane, position in waiting.items())
    deleted = deleted_unread({lane: first for lane, (first, _) in kept.items()}, applied)
    return [_progress(name, count, backlog, stuck), *_deleted(name, deleted)]


def _progress(name: str, count: int, backlog: int, stuck: tuple[Lane, int] | None) -> Diagnosis:
    left = f"{backlog} records wait" if backlog else "nothing waits"
    if count == 0:
        return Diagnosis(f"worker {name}", "down", f"does not run, {left}", f"start `tally worker {name}`")
    if stuck is None:
        return Diagnosis(f"worker {name}", "ok", f"{count} in its group, {left}")
    (topic, partition), offset = stuck
    where = f"{topic.value}, partition {partition}, offset {offset}"
    what = f"{count} in its group, {left}, and it does not get on ({where})"
    # A killed one is a member until its session ends; on the embedded broker, until the next one joins.
    remedy = f"its log and its /readyz say why; if it was killed, start `tally worker {name}`"
    return Diagnosis(f"worker {name}", "down", what, remedy)


def _deleted(name: str, records: int) -> list[Diagnosis]:
    if not records:
        return []
    what = f"{records} records were deleted before it read them"
    return [Diagnosis(f"worker {name}", "note", what, "publish them again; run workers more often than retention.ms")]


async def _applied(settings: Settings, group: str) -> Mapping[Lane, int]:
    async with reading(settings) as connection:
        return await applied_positions(connection, group)


async def _stuck_at(
    settings: Settings, group: str, applied: Mapping[Lane, int], waiting: Mapping[Lane, int]
) -> tuple[Lane, int] | None:
    """Return the first record that waits, where a worker applies nothing for as long as we look."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PATIENCE_S
    # What waits may be nothing that is ever applied: the markers of other producers' transactions.
    record = await first_record(settings.kafka(), waiting)
    while record is not None and loop.time() < deadline:
        await asyncio.sleep(_PAUSE_S)
        if await _applied(settings, group) != applied:
            return None
    return record
