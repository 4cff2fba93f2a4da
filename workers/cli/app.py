"""The `tally` command: its groups, its exit codes, its one-line errors."""

import asyncio
import logging
import sys
import traceback
from collections.abc import Coroutine, Sequence
from enum import IntEnum
from functools import partial
from typing import Any, NoReturn, TypeVar

import typer
from pydantic import ValidationError
from typer.core import TyperGroup
from typer.exceptions import Abort, TyperException

from schemas.errors import DependencyDown, Rejection, TallyError
from schemas.explain import in_words
from topics.asyncapi import CONTRACT_VERSION
from workers.cli.database import SchemaMissing
from workers.cli.output import complain
from workers.embedded.errors import EmbeddedError
from workers.runtime.failures import EXIT_BUG

_T = TypeVar("_T")


class ExitCode(IntEnum):
    """What a script can tell from a command's end."""

    DONE = 0
    NO = 1
    USAGE = 2
    DOWN = 3
    BUG = EXIT_BUG


#: As the README's table has them: first what one needs first.
_ORDER = (
    *("up", "demo", "worker", "topics", "migrate", "publish", "tail", "await", "execution", "memory", "conflicts"),
    *("dead-letters", "doctor", "asyncapi", "bench"),
)


class OneLineErrors(TyperGroup):
    """Turns every expected error into one line that says what to do, and its exit code."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands in the order in which help shows them."""
        return sorted(super().list_commands(ctx), key=_ORDER.index)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 - the overridden signature
        windows_expand_args: bool = True,  # noqa: FBT001, FBT002
        **extra: Any,
    ) -> Any:
        """Run; the process ends with an exit code of `ExitCode`, or 130 after Ctrl-C."""
        run_group = partial(super().main, args, prog_name, complete_var, windows_expand_args=windows_expand_args)
        if not standalone_mode:
            return run_group(standalone_mode=False, **extra)
        # The clients log what the one line says already; `worker` sets up logging of its own.
        logging.getLogger().addHandler(logging.NullHandler())
        try:
            result = run_group(standalone_mode=False, **extra)
        except TallyError as error:
            _fail(error)
        except TyperException as error:
            _explain_usage(error)
        except Abort:
            complain("tally: given up")
            sys.exit(ExitCode.NO)
        except Exception as error:  # noqa: BLE001 - one of the failure points: a bug is not the answer no
            traceback.print_exception(error)
            sys.exit(ExitCode.BUG)
        sys.exit(result if isinstance(result, int) else ExitCode.DONE)


def _fail(error: TallyError) -> NoReturn:
    match error:
        case DependencyDown() | EmbeddedError() | SchemaMissing():
            code = ExitCode.DOWN
        case _:
            code = ExitCode.USAGE
    prefix = f"{error.reason}: " if isinstance(error, Rejection) else ""
    complain(f"tally: {prefix}{error}")
    sys.exit(code)


def _explain_usage(error: TyperException) -> NoReturn:
    message = error.format_message()
    if not message:
        # `tally` alone: its help has been shown.
        sys.exit(ExitCode.USAGE)
    if isinstance(error.__cause__, ValidationError):
        problem = error.__cause__.errors()[0]
        message = message.replace(problem["msg"], in_words(problem))
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "tally"
    complain(f"tally: {message.rstrip('.')}; see `{command} --help`")
    sys.exit(ExitCode.USAGE)


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a command's work to its end."""
    return asyncio.run(work)


def answer_is_no(reason: str) -> NoReturn:
    """End with exit code 1: nothing is wrong, the answer is just no."""
    complain(f"tally: {reason}")
    raise typer.Exit(ExitCode.NO)


def _show_version(value: bool) -> None:  # noqa: FBT001 - typer calls it so
    if value:
        typer.echo(f"tally {CONTRACT_VERSION}")
        raise typer.Exit


app = typer.Typer(
    name="tally",
    cls=OneLineErrors,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help=(
        "Durable, versioned memory for workflow runs, over Kafka and PostgreSQL.\n\n"
        "Try it: `tally demo`. Run everything on this machine: `tally up`. "
        "Look whether all is well: `tally doctor`."
    ),
    epilog=(
        "Exit codes: 0 done, 1 the answer is no (missing, conflict), 2 usage or bad input, 3 a dependency is down; "
        "70 a bug, 130 Ctrl-C in what waits or watches."
    ),
)


@app.callback()
def tally(
    *,
    version: bool = typer.Option(False, "--version", help="Show the version.", callback=_show_version, is_eager=True),
) -> None:
    """Read what comes before the command."""
