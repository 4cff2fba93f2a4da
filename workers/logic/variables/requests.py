"""Order and waiting (design 2.3): when a request may run, and what its answer sets free.

A request awaits others by their keys, not by node ids: what was known on its arrival is bound then, what is
awaited is filled from that very request's answer, however often the node is asked again in between.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue
from workers.logic.variables import entries
from workers.logic.variables.open_requests import START, Request
from workers.logic.variables.references import MISSING, Missing, Path, Reference, descend
from workers.logic.variables.step import Ending, Scope, Step

LookupPath: TypeAlias = Callable[[Path], JsonValue | Missing]
#: Roots that only `execution.started` fills.
_START_ROOTS = frozenset({"input", "system", "event"})
#: Where the node id stands in a path of an alias: outputs.NODE..., state.NAME...
_ALIASES = frozenset({"outputs", "state"})
#: How a node may end that emits none of its ports, not even `done`.
_WITHOUT_PORTS = frozenset({"failed", "skipped"})


@dataclass(frozen=True, slots=True, kw_only=True)
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


def frame_of(body: Mapping[str, JsonValue]) -> str:
    """Return the frame that `iteration` names, outermost first."""
    frame = ""
    iteration = body.get("iteration")
    for level in iteration if isinstance(iteration, list) else ():
        assert isinstance(level, dict), "checked by the schema"
        index = level["index"]
        assert isinstance(index, int), "checked by the schema"
        frame = entries.inner_frame(frame, str(level["node_id"]), index)
    return frame


def accept(step: Step, asked: Asked, *, also_awaits: tuple[str, ...] = ()) -> None:
    """Take a request in: run it, let it wait, or skip it."""
    state = step.state
    request = Request(
        key=str(step.key),
        number=state.next_request_number(),
        type=asked.type,
        node_id=asked.node_id,
        frame=asked.frame,
        body=asked.body,
        provides=asked.provides or (asked.node_id,),
        domain=asked.domain,
        event_id=step.event.id,
        source=step.event.source,
        traceparent=step.event.traceparent,
    )
    gates, skip_reason = _gates(step, asked)
    awaits, bindings = _bindings(step, asked)
    if asked.domain is not None:
        previous = latest_in_domain(step, asked.domain)
        if previous is not None:
            awaits.setdefault(previous, ())
    for key in also_awaits:
        awaits.setdefault(key, ())
    if asked.needs_start and not state.started:
        awaits.setdefault(START, ())
    request = replace(request, awaits=awaits, gates=gates)
    if skip_reason is not None:
        open_request(step, request)
        skip(step, request, "port_absent", skip_reason)
    elif request.is_bound:
        open_request(step, request)
        step.runnable.append(request)
    else:
        open_request(step, replace(request, bindings=bindings, waited=True))


def open_request(step: Step, request: Request) -> None:
    """Note that `request` is outstanding."""
    step.state.save_request(request)
    if request.domain is not None:
        entry = entries.domain(request.domain)
        known = step.state.read(entry)
        step.state.write(entry, {**(known if isinstance(known, dict) else {}), "latest": request.key})


def latest_in_domain(step: Step, domain: str) -> str | None:
    """Return the key of the latest open request of an address or namespace."""
    known = step.state.read(entries.domain(domain))
    latest = known.get("latest") if isinstance(known, dict) else None
    return latest if isinstance(latest, str) and step.state.requests.get(latest) is not None else None


def outstanding(step: Step, frame: str, name: str) -> Request | None:
    """Return the latest unanswered request that will provide `name`, seen from `frame`."""
    visible = entries.outward(frame)
    return next((request for request in step.state.requests.providing(name) if request.frame in visible), None)


def provider_name(path: Path) -> str:
    """Return the node or variable that a path depends on."""
    if path.segments[0] in _ALIASES and len(path.segments) > 1:
        return path.segments[1]
    return path.segments[0]


def _gates(step: Step, asked: Asked) -> tuple[dict[str, str], str | None]:
    """Return what `after` waits for, and why the request must be skipped already, if so."""
    gates: dict[str, str] = {}
    for name in asked.after:
        node_id, _, port = name.partition(".")
        awaited = outstanding(step, asked.frame, node_id)
        if awaited is not None:
            gates[awaited.key] = port
            continue
        ended = _ended_state(step, asked.frame, node_id)
        if ended in _WITHOUT_PORTS:
            return {}, f"{node_id} {ended}"
        output = step.state.lookup(asked.frame, (node_id,))
        answered = ended is not None or output is not MISSING
        if port and answered and not has_port(output, port):
            return {}, f"{node_id} was answered without {port}"
    return gates, None


def has_port(output: JsonValue | Missing, port: str) -> bool:
    """Tell whether a node's output emitted `port`: a value that is there and not null."""
    value = output if output is MISSING else descend(output, port.split("."))
    return value is not MISSING and value is not None


def _ended_state(step: Step, frame: str, node_id: str) -> str | None:
    for scope in entries.outward(frame):
        ended = step.state.read(entries.node(scope, node_id))
        if isinstance(ended, dict):
            return str(ended["ended"])
    return None


def _bindings(step: Step, asked: Asked) -> tuple[dict[str, tuple[str, ...]], dict[str, JsonValue]]:
    """Split the paths into those that must wait, by request, and those whose value is known now."""
    scope = step.lookup_in(asked.frame)
    awaits: dict[str, tuple[str, ...]] = {}
    bindings: dict[str, JsonValue] = {}
    for reference in asked.references:
        for path in reference.paths:
            awaited = outstanding(step, asked.frame, provider_name(path))
            if awaited is not None:
                awaits[awaited.key] = (*awaits.get(awaited.key, ()), str(path))
            elif path.segments[0] in _START_ROOTS and not step.state.started:
                awaits[START] = (*awaits.get(START, ()), str(path))
            else:
                value = scope(path)
                if value is not MISSING:
                    bindings[str(path)] = value
    return awaits, bindings


def lookup_of(step: Step, request: Request) -> LookupPath:
    """Return where a request that runs now finds its paths: what was bound, or the present store."""
    if not request.waited:
        return step.lookup_in(request.frame)
    bound = request.bindings
    return lambda path: bound.get(str(path), MISSING)


# -- how a request ends


def finish(step: Step, request: Request, outputs: JsonObject | None, *, ended: str = "answered") -> None:
    """Close `request`, note how it ended, and let `settle` set free what waited for it.

    `outputs` are by provided name; None when it gives nothing (failed, skipped).
    """
    state = step.state
    state.close_request(request)
    if request.node_id:
        state.write(entries.node(request.frame, request.node_id), {"ended": ended, "type": request.type})
        if ended == "failed":
            state.remove_variable(request.frame, request.node_id)
    step.endings.append(Ending(request, outputs or {}, ended))


def settle(step: Step, run: Callable[[Step, Request], None]) -> None:
    """Go on until nothing more can run: every answer sets free what waited for it, in order.

    A queue, not a recursion: a thousand requests may hang on each other.
    """
    while step.endings or step.runnable:
        if step.endings:
            ending = step.endings.popleft()
            for waiting in step.state.requests.pop_waiting_for(ending.request.key):
                _unlock(step, waiting, ending.request, ending.outputs, ending.ended)
            continue
        request = step.runnable.popleft()
        if step.state.requests.get(request.key) is None:
            continue
        try:
            run(step, request)
        except Rejection as rejection:
            fail(step, request, rejection)


def _unlock(step: Step, waiting: Request, answered: Request, outputs: JsonObject, ended: str) -> None:
    bindings = dict(waiting.bindings)
    for text in waiting.awaits.get(answered.key, ()):
        value = _from_outputs(text, outputs)
        if value is not MISSING:
            bindings[text] = value
    port = waiting.gates.get(answered.key)
    updated = replace(
        waiting,
        awaits={key: paths for key, paths in waiting.awaits.items() if key != answered.key},
        gates={key: gate for key, gate in waiting.gates.items() if key != answered.key},
        bindings=bindings,
    )
    step.state.save_request(updated)
    if port is not None:
        reason = _gate_closed(answered, port, outputs, ended)
        if reason is not None:
            skip(step, updated, "port_absent", reason)
            return
    if updated.is_bound:
        step.runnable.append(updated)


def _gate_closed(answered: Request, port: str, outputs: JsonObject, ended: str) -> str | None:
    if ended in _WITHOUT_PORTS:
        return f"{answered.node_id} {ended}"
    if port and not has_port(outputs.get(answered.node_id), port):
        return f"{answered.node_id} was answered without {port}"
    return None


def _from_outputs(text: str, outputs: JsonObject) -> JsonValue | Missing:
    path = Path(tuple(text.split(".")))
    name = provider_name(path)
    if name not in outputs:
        return MISSING
    rest = path.segments[1:] if name == path.segments[0] else path.segments[2:]
    if path.segments[0] == "outputs" and rest[:1] == ("parsed",):
        rest = rest[1:]
    return descend(outputs[name], rest)


def start_arrived(step: Step) -> None:
    """Bind what only `execution.started` could tell, for the requests that came before it."""
    for request in step.state.requests.pop_waiting_for(START):
        scope = Scope(step.state, request.frame)
        bindings = dict(request.bindings)
        for text in request.awaits[START]:
            value = scope(Path(tuple(text.split("."))))
            if value is not MISSING:
                bindings[text] = value
        awaits = {key: paths for key, paths in request.awaits.items() if key != START}
        updated = replace(request, awaits=awaits, bindings=bindings)
        step.state.save_request(updated)
        if updated.is_bound:
            step.runnable.append(updated)


def fail(step: Step, request: Request, rejection: Rejection) -> None:
    """Answer `request` with `node.failed`; references to it are null."""
    step.answer(request, "node.failed", {"code": rejection.reason, "message": rejection.message})
    finish(step, request, None, ended="failed")


def skip(step: Step, request: Request, code: str, message: str) -> None:
    """Answer `request` with `node.skipped`; what hangs on it by `after` is skipped too."""
    if request.type != "variables.set":
        step.answer(request, "node.skipped", {"code": code, "message": message})
    finish(step, request, None, ended="skipped")


def answer_with(step: Step, request: Request, type_: str, data: JsonObject, outputs: JsonObject) -> None:
    """Store `outputs` under the request's node, answer it, and set free what waited."""
    step.set_variable(request.frame, (request.node_id,), outputs)
    step.set_last_output({"frame": request.frame, "name": request.node_id})
    step.answer(request, type_, data)
    finish(step, request, {request.node_id: outputs})
