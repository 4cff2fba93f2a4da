"""`tally up`: broker, PostgreSQL and all workers on this machine, until Ctrl-C."""

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import typer

from workers.cli.app import app, run
from workers.cli.local import Local, local_stack
from workers.cli.output import complain, say
from workers.cli.worker import WORKERS


@app.command("up")
def up(
    *,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep PostgreSQL's data here; without, nothing stays.")
    ] = None,
) -> None:
    """Run everything on this machine until Ctrl-C: a Kafka-compatible broker, PostgreSQL, all workers.

    Records in the embedded broker live in its memory. With `--data`, stores, memory and their histories stay.
    """
    run(_up(data))


async def _up(data: Path | None) -> None:
    running = asyncio.create_task(_run_everything(data))
    loop = asyncio.get_running_loop()

    def stop() -> None:
        # Once: a second cancellation would cut short the clean-up of the first.
        if not running.cancelling():
            complain("stopping")
            running.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        await running
    except asyncio.CancelledError:
        complain("nothing is left running")


async def _run_everything(data: Path | None) -> None:
    """Start everything and go on until this is cancelled, be it in the middle of the start."""
    async with local_stack(list(WORKERS), complain, data=data, preferred_ports=True) as local:
        _show_how_to_reach(local)
        await local.unless_a_part_ends(_for_ever())


async def _for_ever() -> None:
    await asyncio.Event().wait()


def _show_how_to_reach(local: Local) -> None:
    say("Ready. In another terminal:", "bold green")
    say(f"  export TALLY_KAFKA_BOOTSTRAP_SERVERS={local.settings.kafka_bootstrap_servers}")
    say(f"  export TALLY_POSTGRES_DSN={local.settings.postgres_dsn.get_secret_value()}")
    say("  tally doctor")
    say(f"Logs are in {local.logs}. Ctrl-C stops everything.")
