"""`tally worker`: one or several workers in this process, until SIGTERM or Ctrl-C."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, TypeAlias

import typer

from schemas.errors import UsageError
from workers.cli.app import app
from workers.runtime import array_parameters, collector, logs
from workers.settings import Settings, read_settings

Run: TypeAlias = Callable[[Settings, asyncio.Event], Awaitable[None]]


def _variables() -> Run:
    from workers.variables import worker

    return worker.run


def _memory() -> Run:
    from workers.memory import worker

    return worker.run


#: Workers are imported when they are asked for: Faust alone takes half a second.
WORKERS: Mapping[str, Callable[[], Run]] = {"variables": _variables, "memory": _memory}


@app.command("worker")
def worker(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help=f"{', '.join(WORKERS)}; several may share a process.")
    ],
    *,
    health_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Instead of TALLY_HEALTH_PORT; several workers take it and those after."),
    ] = None,
) -> None:
    """Run workers until SIGTERM or Ctrl-C: the batch at hand is finished, the partitions are given back.

    Start as many processes as you like: they split the partitions. Example: `tally worker variables memory`
    """
    unknown = [name for name in names if name not in WORKERS]
    if unknown:
        raise UsageError(f"no worker {unknown[0]!r}; there are: {', '.join(WORKERS)}")
    settings = read_settings() if health_port is None else read_settings(health_port=health_port)
    logs.configure(settings.log_level, settings.log_format)
    workers = [WORKERS[name]() for name in dict.fromkeys(names)]
    collector.relax()
    array_parameters.look_plainly()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(run_workers(settings, workers))


async def run_workers(settings: Settings, workers: Sequence[Run]) -> None:
    """Run until a signal, or until one of them fails: then all stop and its error is raised."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    tasks = [asyncio.ensure_future(run(_with_health_port(settings, place), stop)) for place, run in enumerate(workers)]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    await asyncio.wait(tasks)
    for task in (*done, *tasks):
        task.result()


def _with_health_port(settings: Settings, place: int) -> Settings:
    """Give each worker of a process a port of its own; 0 is any free one already."""
    port = settings.health_port
    return settings.model_copy(update={"health_port": port + place}) if port and place else settings


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop
