"""`tally await`: what came of a command, a request or an execution, by its id."""

from typing import Annotated

import typer

from topics.outcomes import Refused, find_outcome
from workers.cli.app import ExitCode, answer_is_no, app, run
from workers.cli.options import Json
from workers.cli.output import complain, pretty, say, show_json
from workers.settings import read_settings

#: Answers that say no: a script can branch on the exit code alone.
_NO = frozenset({"memory.conflicted", "memory.missing", "memory.rejected", "node.failed", "node.skipped"})


@app.command("await")
def await_command(
    event_id: Annotated[str, typer.Argument(metavar="ID", help="The id of a command or request, or an execution id.")],
    *,
    source: Annotated[str | None, typer.Option(help="Its source, where several publishers use the same ids.")] = None,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait.")] = 30.0,
    json: Json = False,
) -> None:
    """Wait for the one outcome of an event, also when it came long ago; exit 1 when it says no, or none comes.

    An event that was not accepted has no outcome but a dead letter: it is named, with exit code 1.

    Example: `tally publish order.jsonl && tally await order-7-reserve && echo reserved`
    """
    outcome = run(find_outcome(read_settings().kafka(), event_id, timeout_s=timeout, source=source))
    if outcome is None:
        answer_is_no(
            f"no outcome of {event_id} within {timeout:g} s; is it published, do the workers run (`tally doctor`)? "
            f"A run has one when it ends, a request when nothing holds it up (`tally execution show`)"
        )
    if isinstance(outcome, Refused):
        letter = outcome.letter
        if json:
            said = {"code": letter.code, "message": letter.message, "letter_id": outcome.letter_id}
            show_json({"type": "record.dead_lettered", "data": said})
        answer_is_no(f"{event_id} was dead-lettered: {letter.code}: {letter.message}; see `tally dead-letters list`")
    if json:
        show_json({"type": outcome.type, "subject": outcome.subject, "tenant": outcome.tenant, "data": outcome.data})
    else:
        say(outcome.type, "bold")
        say(pretty(outcome.data))
    failed = outcome.type == "execution.finalized" and outcome.data.get("status") != "completed"
    if failed or outcome.type in _NO or outcome.data.get("success") is False:
        if not json:
            complain(f"tally: {event_id} came to {outcome.type}")
        raise typer.Exit(ExitCode.NO)
