"""A stored revision -> what people see of it: `variables.revised`, and the writes of a step."""

from collections.abc import Mapping
from uuid import UUID

from schemas.envelope import Event
from schemas.exact_json import JsonObject, JsonValue, loads
from schemas.identity import derived_id
from workers.logic.variables import entries
from workers.logic.variables.state import ExecutionKey
from workers.logic.variables.step import SOURCE


def public_writes(changes: Mapping[str, bytes | None]) -> list[JsonValue]:
    """Return the variables that a revision set, as `{path, value}`; `removed` where one went away."""
    writes: list[JsonValue] = []
    for entry, data in changes.items():
        if not entry.startswith(entries.PUBLIC_PREFIXES):
            continue
        if data is None and _is_replaced(entry, changes):
            continue
        write = _path_of(entry)
        if data is None:
            write["removed"] = True
        else:
            write["value"] = loads(data)
        writes.append(write)
    return writes


def _is_replaced(entry: str, changes: Mapping[str, bytes | None]) -> bool:
    """Tell whether a deeper entry went away only because its ancestor was written whole."""
    while "/" in entry:
        entry = entry.rpartition("/")[0]
        if changes.get(entry) is not None:
            return True
    return False


def _path_of(entry: str) -> JsonObject:
    kind, *segments = entries.split(entry)
    match kind:
        case "w":
            return {"path": ".".join(segments[1:]), "frame": segments[0]}
        case "k":
            return {"path": ".".join(("memory", *segments))}
        case _:
            return {"path": ".".join(segments)}


def revised_event(
    key: ExecutionKey,
    revision: int,
    event_key: UUID,
    body: Mapping[str, JsonValue],
    changes: Mapping[str, bytes | None],
) -> Event:
    """Build `variables.revised` from a stored row alone, so that every delivery gives the same bytes."""
    data: JsonObject = {
        "revision": revision,
        "cause": body["cause"],
        "reads": body["reads"],
        "writes": public_writes(changes),
        "late": body["late"],
    }
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
