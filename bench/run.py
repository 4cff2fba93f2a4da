"""All rows, one after the other, on one pair of servers."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from bench import latency, long_execution, memory_writes, restart, variable_events
from bench.figures import Row
from bench.machine import Servers, describe, servers
from bench.options import Options

Found = Sequence[Row]
#: Takes what was measured before, too: the latency is that of a tenth of the maximum.
Measure = Callable[[Servers, Options, Found], Awaitable[list[Row]]]


async def _memory(parts: Servers, options: Options, _: Found) -> list[Row]:
    return [await memory_writes.measure(parts, options, name="memory", items=20_000, processes=1, aim=0.6)]


async def _memory_hot(parts: Servers, options: Options, _: Found) -> list[Row]:
    return [await memory_writes.measure(parts, options, name="memory-hot", items=10, processes=1, aim=0.4)]


async def _memory_two(parts: Servers, options: Options, _: Found) -> list[Row]:
    return [await memory_writes.measure(parts, options, name="memory-two", items=20_000, processes=2, aim=0.6)]


async def _memory_scale(parts: Servers, options: Options, _: Found) -> list[Row]:
    return [await memory_writes.measure_scale(parts, options, name="memory-scale", items=20_000, share=0.3, aim=1.6)]


async def _variables(parts: Servers, options: Options, _: Found) -> list[Row]:
    return [await variable_events.measure(parts, options, name="variables", aim=0.5)]


async def _long_execution(parts: Servers, options: Options, _: Found) -> list[Row]:
    return await long_execution.measure(parts, options)


async def _latency(parts: Servers, options: Options, found: Found) -> list[Row]:
    maximum = next((row.ours.median for row in found if row.name == "memory"), None)
    return await latency.measure(parts, options, maximum)


async def _restart(parts: Servers, options: Options, _: Found) -> list[Row]:
    return await restart.measure(parts, options)


ROWS: Mapping[str, Measure] = {
    "memory": _memory,
    "memory-hot": _memory_hot,
    "memory-two": _memory_two,
    "memory-scale": _memory_scale,
    "variables": _variables,
    "long-execution": _long_execution,
    "latency": _latency,
    "restart": _restart,
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
                rows += await row(parts, options, rows)
    return machine, rows
