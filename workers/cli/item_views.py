"""Items, versions and their writers as documents and as what fits into a table."""

import re
from datetime import UTC, datetime

from schemas.address import parse_address
from schemas.exact_json import Raw, loads
from schemas.memory import KnownWriter, MemoryChanged
from workers.cli.output import short
from workers.logic.memory.items import Item, Version
from workers.logic.memory.timestamps import timestamp

_LINE_CHARACTERS = 60
#: Columns of `item_row`, and of `version_row`.
ITEM_COLUMNS = ("address", "version", "type", "value", "writer", "written", "expires")
VERSION_COLUMNS = ("version", "type", "value", "writer", "written")


def item_document(item: Item) -> dict[str, object]:
    """Return an item whole: where it lies, what it holds, who wrote it and when, how long it stays."""
    address = parse_address(item.address)
    return {
        "address": item.address,
        "scope": address.scope,
        "workflow": address.workflow,
        "subject": "workflow-global" if address.kind is None else {"kind": address.kind, "id": address.id},
        "key": address.key,
        "type": item.type,
        "value": _whole(item.value),
        "version": item.version,
        "writer": None if item.writer is None else Raw(item.writer),
        "written_at": _iso(item.changed_at),
        "expires_at": _iso(item.expires_at),
    }


def item_row(item: Item) -> tuple[str, ...]:
    """Return an item as a row of `ITEM_COLUMNS`."""
    return (
        item.address,
        str(item.version),
        item.type or "-",
        _shown(item.value),
        full_name(item.writer),
        moment(item.changed_at),
        moment(item.expires_at),
    )


def version_document(version: Version) -> dict[str, object]:
    """Return an entry of the history whole."""
    return {
        "version": version.version,
        "type": version.type,
        "value": _whole(version.value),
        "writer": None if version.writer is None else Raw(version.writer),
        "written_at": _iso(version.written_at),
    }


def version_row(version: Version) -> tuple[str, ...]:
    """Return an entry of the history as a row of `VERSION_COLUMNS`."""
    return (
        str(version.version),
        version.type,
        _shown(version.value),
        full_name(version.writer),
        moment(version.written_at),
    )


def change_line(change: MemoryChanged) -> str:
    """Return a change in one line: which version came after which, of whom, and the value, shortened."""
    by = "" if change.writer is None else f" by {name_of(change.writer)}"
    if change.change != "written":
        return f"{change.address}  {change.change}, it was version {change.previous_version}{by}"
    before = f" after {change.previous_version}" if change.previous_version else ""
    return f"{change.address}  written version {change.version}{before}{by} = {short(change.value)}"


def name_of(writer: KnownWriter | None) -> str:
    """Return who wrote, as short as it is known: a run, else a person or a workflow, with the command in brackets."""
    if writer is None:
        return _UNKNOWN
    said = writer.execution_id or writer.user_id or writer.workflow or writer.node_id
    if writer.command_id is None:
        return said or _UNKNOWN
    command = f"command {_short_id(writer.command_id)} from {writer.command_source}"
    return command if said is None else f"{said} ({command})"


_UNKNOWN = "an unknown writer"
#: A drawn id is told by its beginning, `--json` has it whole; an id that somebody chose may differ at its end alone.
_DRAWN = re.compile("[0-9a-f]{8}(?=(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}$)")


def _short_id(command_id: str) -> str:
    drawn = _DRAWN.match(command_id)
    return command_id if drawn is None else f"{drawn[0]}…"


def full_name(writer: bytes | None) -> str:
    """Return who wrote, with the node and the person behind a run."""
    if writer is None:
        return "-"
    known = KnownWriter.model_validate(loads(writer))
    behind = (known.node_id, known.user_id) if known.execution_id else ()
    return " ".join((name_of(known), *(name for name in behind if name)))


def moment(when: datetime | None) -> str:
    """Return a time to the second, in UTC."""
    return "-" if when is None else f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _whole(value: bytes | None) -> Raw | None:
    return None if value is None else Raw(value)


def _shown(value: bytes | None) -> str:
    return "-" if value is None else short(Raw(value), _LINE_CHARACTERS)


def _iso(when: datetime | None) -> str | None:
    return None if when is None else timestamp(when)
