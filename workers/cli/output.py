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
_BETWEEN = " │ "
#: So much of a word stays on one line; longer ones may be broken.
_READABLE = 20


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


def say_that_it_watches(what: str) -> None:
    """Tell a person at a terminal that nothing is wrong while nothing comes."""
    if sys.stderr.isatty():
        complain(f"watching {what}; Ctrl-C ends it")


def show_table(
    title: str | None, columns: Sequence[str], rows: Iterable[Sequence[str]], *, whole: Container[str] = ()
) -> None:
    """Write a table; long cells are folded, never cut, and those of the columns `whole` stay on one line.

    Where that would break words, each row becomes a block of lines instead.
    """
    rows = list(rows)
    natural = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    needed = [
        width if name in whole else min(width, _longest_word((name, *cells)))
        for name, width, *cells in zip(columns, natural, *rows, strict=True)
    ]
    # Rich pads the table's outer edges too where it measures: with less it would cut.
    room = console().width - len(_BETWEEN) * len(columns) + 1 - sum(needed)
    if any(columns) and room < 0:
        _show_blocks(title, columns, rows)
        return
    widths = _widened(needed, natural, room)
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
        if any(columns):
            column.width = widths[place]
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console().print(table)


def _longest_word(cells: Sequence[str]) -> int:
    """Return how wide a column must be to be read, as far as words need not be broken."""
    words = (len(word) for cell in cells for word in cell.split())
    return min(max(words, default=0), _READABLE)


def _widened(needed: Sequence[int], natural: Sequence[int], room: int) -> list[int]:
    """Give what room there is to the narrowest columns that can use it."""
    widths = list(needed)
    for _ in range(room):
        short_of = [place for place, width in enumerate(widths) if width < natural[place]]
        if not short_of:
            break
        widths[min(short_of, key=widths.__getitem__)] += 1
    return widths


def _show_blocks(title: str | None, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write each row as lines of name and value, without the empty ones."""
    if title is not None:
        say(title, "italic")
    names = max(map(len, columns))
    for number, row in enumerate(rows):
        if number:
            say("")
        for name, cell in zip(columns, row, strict=True):
            if cell:
                say(f"{name:<{names}}{_BETWEEN}{cell}")


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


def counted(number: int, what: str) -> str:
    """Return how many there are, in words: `1 event`, `2 events`."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def short(value: object, characters: int = 80) -> str:
    """Return a value as compact JSON, cut to a readable length."""
    text = dumps(value).decode()
    return text if len(text) <= characters else f"{text[: characters - 1]}…"
