"""All rows, one after the other, on one pair of servers."""

from collections.abc import Awaitable, Callable, Iterable, Mapping

from bench import memory_writes, variable_events
from bench.figures import Row
from bench.machine import Servers, describe, servers
from bench.options import Options

Measure = Callable[[Servers, Options], Awaitable[list[Row]]]


async def _memory(parts: Servers, options: Options) -> list[Row]:
    return [await memory_writes.measure(parts, options, name="memory", items=20_000, processes=1, aim=0.6)]


async def _memory_hot(parts: Servers, options: Options) -> list[Row]:
    return [await memory_writes.measure(parts, options, name="memory-hot", items=10, processes=1, aim=0.4)]


async def _memory_two(parts: Servers, options: Options) -> list[Row]:
    return [await memory_writes.measure(parts, options, name="memory-two", items=20_000, processes=2, aim=0.6)]


async def _variables(parts: Servers, options: Options) -> list[Row]:
    return [await variable_events.measure(parts, options, name="variables", aim=0.5)]


ROWS: Mapping[str, Measure] = {
    "memory": _memory,
    "memory-hot": _memory_hot,
    "memory-two": _memory_two,
    "variables": _variables,
}


async def measure(
    names: Iterable[str], options: Options, on_progress: Callable[[str], None]
) -> tuple[dict[str, object], list[Row]]:
    """Measure the rows `names`, in the order of `ROWS`; return what the machine is, and the rows."""
    wanted = set(names) or set(ROWS)
    async with servers() as parts:
        machine = await describe(parts)
        rows: list[Row] = []
        for name, row in ROWS.items():
            if name in wanted:
                on_progress(f"measuring {name}")
                rows += await row(parts, options)
    return machine, rows
