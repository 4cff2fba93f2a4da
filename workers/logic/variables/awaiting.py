"""What a request has to wait for, found out on its arrival."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, cast

from schemas.exact_json import JsonObject, JsonValue
from workers.logic.variables import entries
from workers.logic.variables.open_requests import START, Request
from workers.logic.variables.references import MISSING, Missing, Path, Reference, descend
from workers.logic.variables.scope import POINTERS, provider_name
from workers.logic.variables.step import Step

LookupPath: TypeAlias = Callable[[Path], JsonValue | Missing]
OPEN_LOOP = "foreach.open"
#: Roots that only `execution.started` fills.
START_ROOTS = frozenset({"input", "system", "event"})
#: How a node may end that emits none of its ports, not even `done`.
_WITHOUT_PORTS = frozenset({"failed", "skipped", "abandoned"})


@dataclass(slots=True, kw_only=True)
class Asked:
    """A request on arrival: what it needs, before anything is looked up."""

    type: str
    node_id: str
    frame: str
    body: JsonObject
    references: tuple[Reference, ...]
    after: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    domain: str | None = None
    needs_start: bool = False


def scratchpad_domain(namespace: str) -> str:
    """Return the domain in whose order the requests on a scratchpad namespace run; no address is called so."""
    return f"scratchpad/{namespace}"


def outstanding(step: Step, frame: str, name: str) -> Request | None:
    """Return the latest unanswered request that will give what `name` means in `frame`."""
    state = step.state
    if not len(state.requests):
        return None
    for scope in entries.outward(frame):
        request = state.requests.latest(scope, name) or (_opening(step, scope, name) if scope else None)
        if request is not None:
            return request
        if state.has_variable(scope, name):
            return None
    return None


def _opening(step: Step, frame: str, name: str) -> Request | None:
    """Return the unanswered `foreach.open` that will give `frame` its item under this name."""
    for request in reversed(step.state.requests.giving(*entries.loop_of(frame))):
        if request.type == OPEN_LOOP and request.body["item_variable"] == name:
            return request
    return None


def gates_of(step: Step, asked: Asked) -> tuple[dict[str, tuple[str, ...]], str | None]:
    """Return what `after` waits for, and why the request must be skipped already, if so."""
    gates: dict[str, tuple[str, ...]] = {}
    for after in asked.after:
        node_id, _, port = after.partition(".")
        awaited, ended = _innermost(step, asked.frame, node_id)
        if awaited is not None:
            gates[awaited.key] = (*gates.get(awaited.key, ()), after)
            continue
        output = step.state.lookup(asked.frame, (node_id,)) if port else MISSING
        if ended or output is not MISSING:
            closed = closed_gate(after, output, str(ended.get("ended", "answered")), ended.get("ports"))
            if closed is not None:
                return {}, closed
    return gates, None


def closed_gate(after: str, output: JsonValue | Missing, ended: str, ports: JsonValue = None) -> str | None:
    """Tell why an `after` does not hold for a node that has ended, or None where it does.

    `ports` are the names of what a mapped output gave; of any other answer the `output` is stored.
    """
    node_id, _, port = after.partition(".")
    if ended in _WITHOUT_PORTS:
        return f"{node_id} {ended}"
    if port in ("", "done"):
        return None
    if isinstance(ports, list):
        return None if port.partition(".")[0] in ports else f"{node_id} was answered without {port}"
    value = output if output is MISSING else descend(output, port.split("."))
    return f"{node_id} was answered without {port}" if value is MISSING or value is None else None


def _innermost(step: Step, frame: str, node_id: str) -> tuple[Request | None, JsonObject]:
    """Return the unanswered request that `after` means by a name, else how the node ended.

    The innermost node of the name is meant, however it ended: an outer one that is still unanswered is another node.
    """
    for scope in entries.outward(frame):
        awaited = step.state.requests.latest(scope, node_id) or (_opening(step, scope, node_id) if scope else None)
        ended = step.state.read(entries.node(scope, node_id)) if awaited is None else MISSING
        if awaited is not None or isinstance(ended, dict) or step.state.has_variable(scope, node_id):
            return awaited, ended if isinstance(ended, dict) else {}
    return None, {}


def awaits_of(step: Step, asked: Asked, gates: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the requests that the references need, each with the paths that its answer binds.

    A request that comes `after` others means by `last_output` and its like what the latest of them will leave.
    """
    if not asked.references:
        return {}
    gates = sorted(gates, key=lambda key: cast("Request", step.state.requests.get(key)).number)
    found: dict[str, dict[str, None]] = {}
    scope = step.lookup_in(asked.frame)
    for reference in asked.references:
        for path in reference.paths:
            awaited = _awaited_by(step, asked.frame, path, gates)
            value = scope(path) if not awaited and len(reference.paths) > 1 else MISSING
            for key in awaited:
                found.setdefault(key, {})[str(path)] = None
            # What comes after a value that is known and not null can never be the answer.
            if value not in (MISSING, None):
                break
    return {key: tuple(paths) for key, paths in found.items()}


def _awaited_by(step: Step, frame: str, path: Path, gates: list[str]) -> list[str]:
    root = path.segments[0]
    if root in POINTERS:
        return gates[-1:]
    if root == "memory":
        return step.state.requests.in_domain(scratchpad_domain(path.segments[1])) if len(path.segments) > 1 else []
    awaited = outstanding(step, frame, provider_name(path))
    if awaited is not None:
        return [awaited.key]
    return [START] if root in START_ROOTS and not step.state.started else []


def known_values(
    lookup: LookupPath, references: Iterable[Reference], awaits: Mapping[str, tuple[str, ...]]
) -> dict[str, JsonValue]:
    """Return the values of the paths that nothing has to be awaited for."""
    awaited = {path for paths in awaits.values() for path in paths}
    known: dict[str, JsonValue] = {}
    for reference in references:
        for path in reference.paths:
            text = str(path)
            value = MISSING if text in awaited else lookup(path)
            if value is not MISSING:
                known[text] = value
                if value is not None:
                    break
    return known
