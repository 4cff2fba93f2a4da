"""A race in words and as a table: who won, who lost, from which base."""

from schemas.memory import ConflictSide, MemoryConflictDetected, Writer
from workers.cli.output import short

_RESOLUTIONS = {
    "rejected": "nothing was written",
    "merged": "both were merged",
    "overwritten": "it was overwritten unseen",
}

#: What one line shows of each value.
_LINE_CHARACTERS = 40


def conflict_line(conflict: MemoryConflictDetected) -> str:
    """Return a race in one line: who met whom, what became of it, and the values, shortened."""
    loser = name_of(conflict.attempted.writer, conflict.command_source)
    holder = name_of(None if conflict.current is None else conflict.current.writer)
    expected = "" if conflict.expected_version is None else f" expected version {conflict.expected_version} but"
    sides = (("base", conflict.base), ("current", conflict.current), ("attempted", conflict.attempted))
    values = ", ".join(f"{name} {_value(side, _LINE_CHARACTERS)}" for name, side in sides if side is not None)
    return (
        f"{conflict.address}  {conflict.kind}: {loser}{expected} met version {conflict.current_version} of {holder}; "
        f"{_RESOLUTIONS[conflict.resolution]} ({values})"
    )


def conflict_rows(conflict: MemoryConflictDetected) -> list[tuple[str, str, str, str]]:
    """Return base, current and attempted as rows: which, version, value, writer."""
    sides = (
        ("base", conflict.base, None),
        ("current (won)", conflict.current, None),
        ("attempted (lost)", conflict.attempted, conflict.command_source),
    )
    return [(name, _version(side), _value(side), name_of(side.writer, source)) for name, side, source in sides if side]


def name_of(writer: Writer | None, source: str | None = None) -> str:
    """Return who wrote, as short as it is known: a writer that says nothing of itself is its event's `source`."""
    said = None if writer is None else writer.execution_id or writer.user_id or writer.workflow or writer.node_id
    return said or source or "a client without a writer"


def _version(side: ConflictSide) -> str:
    return "-" if side.version is None else str(side.version)


def _value(side: ConflictSide, characters: int = 80) -> str:
    return f"({side.value_bytes} bytes)" if side.value_bytes is not None else short(side.value, characters)
