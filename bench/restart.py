"""A worker with many open executions: its memory, and how soon after a kill it applies the first event."""

import asyncio
import contextlib
import random
from time import perf_counter

from bench import kafka
from bench.figures import Row, Series
from bench.machine import Bench, Servers, bench_on
from bench.options import Options
from bench.process import Measured, worker
from bench.variable_events import completed, record
from schemas.envelope import Event
from schemas.exact_json import JsonObject
from topics.catalog import Topic
from topics.publisher import Publisher

_VARIABLES = 20
_VALUE_BYTES = 30
#: The group must have noticed the kill before the next worker starts, or its wait would be measured too.
_SESSION_TIMEOUT_S = 6.0
_FILL = 5_000


def opened(execution_id: str) -> Event:
    """Return an event that leaves an open execution with its variables."""
    variables: JsonObject = {f"variable-{n}": f"{n}-{execution_id}".ljust(_VALUE_BYTES, "x") for n in range(_VARIABLES)}
    return Event(
        id=f"{execution_id}/set",
        source="/bench",
        type="variables.set",
        subject=execution_id,
        data={"variables": variables},
    )


async def measure(servers: Servers, options: Options) -> list[Row]:
    """Return the row of the restart and the rows of memory."""
    count = options.open_executions
    async with contextlib.AsyncExitStack() as stack:
        bench = await stack.enter_async_context(bench_on(servers))
        environment = {**bench.environment(), "TALLY_KAFKA_SESSION_TIMEOUT_S": str(_SESSION_TIMEOUT_S)}
        process = worker("variables", 0, environment, bench.logs)
        stack.push_async_callback(_stop, process)
        publisher = await stack.enter_async_context(kafka.publisher(bench))
        done = await stack.enter_async_context(kafka.log_end(bench, Topic.VARIABLE_UPDATES))
        await process.process.start()
        await _apply(publisher, done, [completed("first", "a", 0)])
        at_rest = process.memory_mib()
        names = [f"open-{number}" for number in range(count)]
        for start in range(0, count, _FILL):
            await _apply(publisher, done, [opened(name) for name in names[start : start + _FILL]])
        filled = process.memory_mib()

        ours: list[float] = []
        raw: list[float] = []
        for number in range(options.restarts):
            await process.process.kill()
            raw.append(await _read_changelog(bench))
            await asyncio.sleep(_SESSION_TIMEOUT_S + 1)
            began = perf_counter()
            await process.process.start()
            await _apply(publisher, done, [completed(random.choice(names), "after", number)])
            ours.append(perf_counter() - began)
            await asyncio.sleep(1)
        recovered = process.memory_mib()
    work = f"{count:,} open executions of {_VARIABLES} variables of {_VALUE_BYTES} bytes"
    mib = "MiB"
    return [
        Row(
            "restart",
            f"from the start of a new process to the first event applied, {work}",
            Series("ours, process start included", "s", tuple(ours)),
            (Series("raw: reading the changelog, aiokafka", "s", tuple(raw)),),
            better="low",
            aim=2.0,
        ),
        Row(
            "memory-at-rest",
            "resident memory of a variable worker",
            Series("no executions", mib, (at_rest,)),
            better="low",
        ),
        Row(
            "memory-filled",
            f"resident memory of a variable worker with {work}",
            Series("after applying them", mib, (filled,)),
            (Series("after a restart", mib, (recovered,)),),
            better="low",
            notes=(f"{(filled - at_rest) * 1024 / count:.1f} KiB for each execution",),
        ),
    ]


async def _stop(process: Measured) -> None:
    if process.process.running:
        await process.process.stop()


async def _apply(publisher: Publisher, done: kafka.LogEnd, events: list[Event]) -> None:
    target = await done.records() + len(events)
    await kafka.fill(publisher, [record(event) for event in events])
    await done.wait_for(target)


async def _read_changelog(bench: Bench) -> float:
    """Read every record of the changelog once, as fast as aiokafka can."""
    topic = bench.settings.kafka().wire_name(Topic.EXECUTIONS_TABLE)
    began = perf_counter()
    async with kafka.whole_log(bench, topic) as records:
        async for _ in records:
            pass
    return perf_counter() - began
