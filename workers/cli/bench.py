"""`tally bench`: the speed of this machine, ours beside the raw limits (the package `bench`)."""

from typing import Annotated

import typer

from schemas.errors import UsageError
from workers.cli.app import app, run
from workers.cli.output import complain, say, show_json


@app.command("bench")
def bench(
    *,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Measure this row; repeatable.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller rounds: minutes become seconds.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Write JSON for programs.")] = False,
) -> None:
    """Measure our speed beside what Kafka, PostgreSQL and Faust can do alone, on this machine, in one run.

    Uses the servers of TALLY_KAFKA_BOOTSTRAP_SERVERS and TALLY_POSTGRES_DSN where they are set, else starts its own.

    Example: `tally bench --quick --only memory`
    """
    from bench.options import Options
    from bench.report import as_json, as_table
    from bench.run import ROWS, measure

    unknown = [name for name in only or () if name not in ROWS]
    if unknown:
        raise UsageError(f"no row {unknown[0]!r}; there are: {', '.join(ROWS)}")
    machine, rows = run(measure(only or (), Options.quick() if quick else Options(), complain))
    if json:
        show_json(as_json(machine, rows))
    else:
        say(as_table(machine, rows))
