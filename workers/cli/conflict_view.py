"""A race in words and as a table: who won, who lost, from which base."""

from datetime import datetime

from schemas.memory import ConflictSide, MemoryConflictDetected
from workers.cli.item_views import moment, name_of
from workers.cli.output import short

_RESOLUTIONS = {
    "rejected": "nothing was written",
    "merged": "both were merged",
    "overwritten": "it was overwritten unseen",
}

#: What one line shows of each value.
_LINE_CHARACTERS = 40


def conflict_line(conflict: MemoryConflictDetected, when: datetime) -> str:
    """Return a race in one line: when it was, who met whom, what became of it, and the values, shortened."""
    loser = name_of(conflict.attempted.writer)
    knew = "had seen" if conflict.kind == "lost_update" else "expected"
    expected = "" if conflict.expected_version is None else f" {knew} version {conflict.expected_version} but"
    sides = (("base", conflict.base), ("current", conflict.current), ("attempted", conflict.attempted))
    values = ", ".join(f"{name} {_value(side, _LINE_CHARACTERS)}" for name, side in sides if side is not None)
    return (
        f"{moment(when)}  {conflict.address}  {conflict.kind}: {loser}{expected} {_found(conflict)}; "
        f"{_RESOLUTIONS[conflict.resolution]} ({values})"
    )


def conflict_rows(conflict: MemoryConflictDetected) -> list[tuple[str, str, str, str]]:
    """Return base, current and attempted as rows: which, version, value, writer."""
    sides = (("base", conflict.base), ("current (won)", conflict.current), ("attempted (lost)", conflict.attempted))
    return [(name, _version(side), _value(side), _writer(side)) for name, side in sides if side]


def _found(conflict: MemoryConflictDetected) -> str:
    """Say what the second writer found instead of what it knew."""
    writer = None if conflict.current is None else conflict.current.writer
    if conflict.current_version:
        return f"met version {conflict.current_version} of {name_of(writer)}"
    return "found nothing stored" if writer is None else f"found it forgotten by {name_of(writer)}"


def _writer(side: ConflictSide) -> str:
    return "-" if side.writer is None and side.version == 0 else name_of(side.writer)


def _version(side: ConflictSide) -> str:
    return "-" if side.version is None else str(side.version)


def _value(side: ConflictSide, characters: int = 80) -> str:
    if side.version == 0:
        return "nothing"
    return f"({side.value_bytes} bytes)" if side.value_bytes is not None else short(side.value, characters)
