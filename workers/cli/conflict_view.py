"""A race in words and as a table: who won, who lost, from which base."""

from schemas.memory import ConflictSide, MemoryConflictDetected, Writer
from workers.cli.output import short

_RESOLUTIONS = {
    "rejected": "nothing was written",
    "merged": "both were merged",
    "overwritten": "it was overwritten unseen",
}


def conflict_line(conflict: MemoryConflictDetected) -> str:
    """Return a race in one line."""
    loser = name_of(conflict.attempted.writer)
    holder = name_of(None if conflict.current is None else conflict.current.writer)
    expected = "" if conflict.expected_version is None else f" expected version {conflict.expected_version} but"
    return (
        f"{conflict.address}  {conflict.kind}: {loser}{expected} met version {conflict.current_version} of {holder}; "
        f"{_RESOLUTIONS[conflict.resolution]}"
    )


def conflict_rows(conflict: MemoryConflictDetected) -> list[tuple[str, str, str, str]]:
    """Return base, current and attempted as rows: which, version, value, writer."""
    sides = (("base", conflict.base), ("current (won)", conflict.current), ("attempted (lost)", conflict.attempted))
    return [(name, _version(side), _value(side), name_of(side.writer)) for name, side in sides if side is not None]


def name_of(writer: Writer | None) -> str:
    """Return who wrote, as short as it is known."""
    if writer is None:
        return "somebody"
    return writer.execution_id or writer.user_id or writer.workflow or "somebody"


def _version(side: ConflictSide) -> str:
    return "-" if side.version is None else str(side.version)


def _value(side: ConflictSide) -> str:
    return f"({side.value_bytes} bytes)" if side.value_bytes is not None else short(side.value)
