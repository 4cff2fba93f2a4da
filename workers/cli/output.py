"""What a person or a program reads: tables and lines on standard output, errors in one line on standard error."""

import sys
from collections.abc import Container, Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from schemas.exact_json import dumps

#: Piped output is as wide as its content needs; a terminal folds.
_PIPED_WIDTH = 240
_INDENT = "  "


def console() -> Console:
    """Return the console of standard output, as it is now."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPED_WIDTH, soft_wrap=False)


def say(line: str, style: str | None = None) -> None:
    """Write one line, its text taken literally."""
    console().print(Text(line, style=style or ""), soft_wrap=True)


def complain(line: str) -> None:
    """Write one line to standard error."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def show_table(
    title: str | None, columns: Sequence[str], rows: Iterable[Sequence[str]], *, whole: Container[str] = ()
) -> None:
    """Write a table; long cells are folded, never cut, and those of the columns `whole` stay on one line."""
    rows = list(rows)
    table = Table(
        *columns,
        title=title,
        title_justify="left",
        show_header=any(columns),
        header_style="bold",
        show_edge=False,
        pad_edge=False,
    )
    for place, column in enumerate(table.columns):
        column.overflow = "fold"
        if columns[place] in whole:
            # Not `no_wrap`, which cuts a cell where the terminal is narrow.
            column.min_width = max((len(row[place]) for row in rows), default=0)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console().print(table)


def show_json(value: object) -> None:
    """Write one JSON document, indented, numbers as they are."""
    _write(pretty(value))


def show_json_line(value: object) -> None:
    """Write one JSON document on one line, for streams."""
    _write(dumps(value).decode())


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def pretty(value: object, indent: str = "") -> str:
    """Return indented JSON with exact numbers."""
    inner = indent + _INDENT
    match value:
        case dict() if value:
            lines = (f"{inner}{dumps(str(key)).decode()}: {pretty(part, inner)}" for key, part in value.items())
            return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
        case list() | tuple() if value:
            return "[\n" + ",\n".join(f"{inner}{pretty(part, inner)}" for part in value) + f"\n{indent}]"
        case _:
            return dumps(value).decode()


def short(value: object, characters: int = 80) -> str:
    """Return a value as compact JSON, cut to a readable length."""
    text = dumps(value).decode()
    return text if len(text) <= characters else f"{text[: characters - 1]}…"
