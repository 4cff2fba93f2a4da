"""What the worker says and stores, in the words of the model."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from schemas.envelope import Event
from tests.support.model_order import Frame
from workers.logic.variables import entries
from workers.logic.variables.state import ExecutionState


def said(event: Event, asked: Mapping[str, tuple[str, Frame]]) -> tuple[Any, ...]:
    """Return what an outgoing event tells; `asked` knows the event and frame behind each command's id."""
    data = event.data
    if event.type == "execution.finalized":
        names = ("status", "output", "error", "late", "variables")
        return (event.type, {name: data[name] for name in names if name in data})
    frame = frame_of(data)
    if event.type == "child.completed":
        return (event.type, event.subject, data["node_id"], frame, (data["status"], data["outputs"], data.get("error")))
    if event.type.startswith("memory."):
        asked_by, frame = asked[event.id]
        command = (data["key"], data.get("value"), data.get("expected_version"), data.get("read_version"))
        return (event.type, data["writer"]["node_id"], frame, asked_by, command)
    return (event.type, data["node_id"], frame, data["request_id"], _payload(event.type, data))


def frame_of(data: Mapping[str, Any]) -> Frame:
    """Return the loops around what an event is about, outermost first."""
    return tuple((step["node_id"], step["index"]) for step in data.get("iteration") or ())


def _payload(event_type: str, data: Mapping[str, Any]) -> Any:
    match event_type:
        case "node.failed" | "node.skipped":
            return data["code"]
        case "node.answered":
            return data["outputs"]
        case "activity.ready":
            return (data["inputs"], data["missing"])
        case "condition.evaluated":
            return data["result"]
        case "parallel.joined":
            return list(data["results"].items())
        case "foreach.opened":
            return ([item["item"] for item in data["items"]], [item["inputs"] for item in data["items"]])
        case "foreach.closed":
            return data["results"]
        case _:
            return (data["input"], data["output"])


def variables(state: ExecutionState, names: Mapping[str, bytes]) -> dict[Frame, dict[str, Any]]:
    """Return every variable by frame and name."""
    found: dict[Frame, dict[str, Any]] = defaultdict(dict)
    for entry in names:
        if entry.startswith(("v/", "w/")):
            kind, *segments = entries.split(entry)
            frame, name = ("", segments[0]) if kind == "v" else (segments[0], segments[1])
            if name not in found[frame_at(frame)]:
                found[frame_at(frame)][name] = state.variable(frame, (name,))
    return dict(found)


def frame_at(frame: str) -> Frame:
    """Read a frame as entries name it: `OUTER[3]>INNER[0]`."""
    return tuple((part[: part.index("[")], int(part[part.index("[") + 1 : -1])) for part in frame.split(">") if part)


def scratchpad(state: ExecutionState, names: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    """Return the scratchpad by namespace and key."""
    namespaces = {entries.split(entry)[1] for entry in names if entry.startswith("k/")}
    return {namespace: state.namespace(namespace) for namespace in namespaces}
