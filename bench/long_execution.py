"""What one event costs in an execution of 5,000 activities, beside executions of 50."""

import contextlib

from bench import kafka
from bench.figures import Row, Series
from bench.machine import Bench, Servers, bench_on
from bench.options import Options
from bench.ours import Worker
from bench.process import worker
from bench.variable_events import check, completed, record, started
from schemas.envelope import Event
from topics.catalog import Topic

_SHORT = 50


def activities(execution_id: str, count: int) -> list[Event]:
    """Return an execution of so many activities, each with an id of its own: its store grows all the time."""
    return [started(execution_id), *(completed(execution_id, f"step-{n}", n) for n in range(1, count))]


async def measure(servers: Servers, options: Options) -> list[Row]:
    """Return the row of CPU time and the row of changelog bytes, both for each event."""
    events = options.long_execution
    cpu: dict[str, list[float]] = {"long": [], "short": []}
    size: dict[str, list[float]] = {"long": [], "short": []}
    async with contextlib.AsyncExitStack() as stack:
        bench = await stack.enter_async_context(bench_on(servers))
        publisher = await stack.enter_async_context(kafka.publisher(bench))
        done = await stack.enter_async_context(kafka.log_end(bench, Topic.VARIABLE_UPDATES))
        waiting: list[Event] = []
        ours = Worker(
            "ours",
            [worker("variables", 0, bench.environment(), bench.logs)],
            publisher,
            done,
            lambda: [record(event) for event in waiting],
        )
        stack.push_async_callback(ours.stop)
        read = 0
        for number in range(options.rounds + 1):
            for kind in ("long", "short"):
                each = events if kind == "long" else _SHORT
                names = [f"ours-{kind}-{number}-{n}" for n in range(events // each)]
                waiting = [event for name in names for event in activities(name, each)]
                await ours.prepare()
                await ours.run()
                end = await _changelog_bytes(bench)
                if number:
                    cpu[kind].append(ours.cpu_s[-1] / events * 1e6)
                    size[kind].append((end - read) / events)
                read = end
        await check(bench.dsn, "ours-%", 2 * events * (options.rounds + 1))
    work = f"one execution of {events:,} activities beside {events // _SHORT} of {_SHORT}, 300-byte outputs"
    return [
        _row("long-execution", f"CPU of the worker, {work}", "µs/event", cpu),
        _row("long-execution-changelog", f"keys and values of the changelog, {work}", "B/event", size),
    ]


def _row(name: str, work: str, unit: str, found: dict[str, list[float]]) -> Row:
    long, short = tuple(found["long"]), tuple(found["short"])
    limit = (Series(f"the same events as executions of {_SHORT}", unit, short),)
    return Row(name, work, Series("one long execution", unit, long), limit, better="low", aim=1.2)


async def _changelog_bytes(bench: Bench) -> int:
    """Return the size of all keys and values in the changelog."""
    topic = bench.settings.kafka().wire_name(Topic.EXECUTIONS_TABLE)
    total = 0
    async with kafka.whole_log(bench, topic) as records:
        async for record in records:
            total += len(record.key or b"") + len(record.value or b"")
    return total
