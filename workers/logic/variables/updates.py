"""A stored revision -> what people see of it: `variables.revised`, and the writes of a step."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import cast
from uuid import UUID

from schemas.envelope import Event
from schemas.exact_json import JsonObject, JsonValue, Raw, loads
from schemas.identity import derived_id
from schemas.limits import DEFAULT_LIMITS
from workers.logic.variables import entries
from workers.logic.variables.state import ExecutionKey
from workers.logic.variables.step import SOURCE, path_bytes

#: What a read or write takes in JSON beside its path and value, at most.
_OVERHEAD_BYTES = 64


def public_writes(changes: Mapping[str, bytes | None]) -> list[JsonValue]:
    """Return the variables that a revision set, as `{path, value}`; `removed` where one went away."""
    return [
        {**_path(entry), "removed": True} if data is None else {**_path(entry), "value": loads(data)}
        for entry, data in _public(changes)
    ]


def _public(changes: Mapping[str, bytes | None]) -> list[tuple[str, bytes | None]]:
    return [
        (entry, data)
        for entry, data in changes.items()
        if entry.startswith(entries.PUBLIC_PREFIXES) and (data is not None or not _is_replaced(entry, changes))
    ]


def _is_replaced(entry: str, changes: Mapping[str, bytes | None]) -> bool:
    """Tell whether a deeper entry went away only because its ancestor was written whole, or went away itself."""
    while "/" in entry:
        entry = entry.rpartition("/")[0]
        if entry in changes:
            return True
    return False


@lru_cache(maxsize=65536)
def _path(entry: str) -> Mapping[str, JsonValue]:
    kind, *segments = entries.split(entry)
    match kind:
        case "w":
            return {"path": ".".join(segments[1:]), "frame": segments[0]}
        case "k":
            return {"path": ".".join(("memory", *segments))}
        case _:
            return {"path": ".".join(segments)}


def _written(entry: str, data: bytes | None) -> JsonObject:
    """Return a write as it is published: the value stays the bytes that are stored."""
    return cast(
        "JsonObject", {**_path(entry), "removed": True} if data is None else {**_path(entry), "value": Raw(data)}
    )


def revised_event(
    key: ExecutionKey,
    revision: int,
    event_key: UUID,
    body: Mapping[str, JsonValue],
    changes: Mapping[str, bytes | None],
) -> Event:
    """Build `variables.revised` from a stored row alone, so that every delivery gives the same bytes.

    A fork's first revision writes a whole store: what goes beyond 1 MiB is counted instead.
    """
    reads = cast("list[JsonObject]", body["reads"])
    writes = _public(changes)
    shown_reads = _within_limit([path_bytes(str(read["path"])) for read in reads])
    shown_writes = _within_limit([path_bytes(entry) + len(value or b"") for entry, value in writes])
    data: JsonObject = {
        "revision": revision,
        "cause": body["cause"],
        "reads": cast("list[JsonValue]", reads[:shown_reads]),
        "writes": [_written(entry, value) for entry, value in writes[:shown_writes]],
        "late": body["late"],
    }
    if shown_reads < len(reads):
        data["more_reads"] = len(reads) - shown_reads
    if shown_writes < len(writes):
        data["more_writes"] = len(writes) - shown_writes
    traceparent = body.get("traceparent")
    return Event(
        id=derived_id(event_key, "revised"),
        source=SOURCE,
        type="variables.revised",
        subject=key.execution_id,
        tenant=key.tenant,
        time=str(body["at"]),
        traceparent=traceparent if isinstance(traceparent, str) else None,
        data=data,
    )


def _within_limit(sizes: Sequence[int]) -> int:
    """Return how many of the first ones fit into 1 MiB together."""
    if sum(sizes) + len(sizes) * _OVERHEAD_BYTES <= DEFAULT_LIMITS.result_bytes:
        return len(sizes)
    totals = accumulate(size + _OVERHEAD_BYTES for size in sizes)
    return sum(1 for total in totals if total <= DEFAULT_LIMITS.result_bytes)
