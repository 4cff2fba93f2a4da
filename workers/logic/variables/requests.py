"""Order and waiting: when a request may run, and what its answer sets free.

A request awaits others by their keys, not by node ids: what was known on its arrival is bound then, what is
awaited is filled from that very request's answer, however often the node is asked again in between.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue, dumps
from schemas.names import check_name
from workers.logic.variables import entries
from workers.logic.variables.awaiting import (
    Asked,
    LookupPath,
    awaits_of,
    gates_of,
    known_values,
)
from workers.logic.variables.open_requests import START, Request
from workers.logic.variables.references import MISSING, Reference
from workers.logic.variables.step import Ending, Step

SET_VARIABLES = "variables.set"
#: Facts after which a node is not outstanding any more, even where they are refused. Early ones may wait for the start.
ENDINGS = frozenset({"activity.completed", "activity.failed", "child.completed"})
#: Whose answer is what they leave in the store.
SETTERS = ENDINGS | {SET_VARIABLES}
_KEPT_WHEN_SENT = ("node_id", "activity_id", "iteration")


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


def after_of(body: Mapping[str, JsonValue]) -> tuple[str, ...]:
    """Return what `after` names: a node, a port, or several."""
    after = body.get("after")
    if after is None:
        return ()
    return tuple(map(str, after)) if isinstance(after, list) else (str(after),)


def take_in(
    step: Step,
    body: JsonObject,
    references: tuple[Reference, ...],
    *,
    provides: tuple[str, ...] = (),
    domain: str | None = None,
    needs_start: bool = False,
    also_awaits: Iterable[str] = (),
) -> None:
    """Take in the present event as a request of the node that it names. Raises `Rejection`, as `accept` does."""
    asked = Asked(
        type=step.event.type,
        node_id=named_node(step, body),
        frame=frame_of(body),
        body=body,
        references=references,
        after=after_of(body),
        provides=provides,
        domain=domain,
        needs_start=needs_start,
    )
    accept(step, asked, also_awaits=also_awaits)


def named_node(step: Step, body: JsonObject) -> str:
    """Return the node or activity that a body names. Raises `Rejection` (`name_invalid`)."""
    field, what = ("activity_id", "the activity id") if "activity_id" in body else ("node_id", "the node id")
    node_id = str(body[field])
    check_name(node_id, what, step.limits)
    return node_id


def accept(step: Step, asked: Asked, *, also_awaits: Iterable[str] = ()) -> None:
    """Take a request in: run it, let it wait, or skip it. Raises `Rejection` (`result_too_large`)."""
    state = step.state
    gates, closed = gates_of(step, asked)
    awaits = awaits_of(step, asked, gates)
    for key in also_awaits:
        gates.setdefault(key, ())
    if asked.needs_start and not state.started:
        gates.setdefault(START, ())
    must_wait = bool(awaits or gates) or (
        asked.domain is not None and state.requests.first_in(asked.domain) is not None
    )
    number = state.next_number()
    request = Request(
        key=step.key_text,
        number=number,
        type=asked.type,
        node_id=asked.node_id,
        frame=asked.frame,
        body=asked.body,
        provides=asked.provides or (asked.node_id,),
        domain=asked.domain,
        turn=number,
        awaits=awaits,
        gates=gates,
        bindings=known_values(step.lookup_in(asked.frame), asked.references, awaits) if must_wait else {},
        choices=_choices(asked.references) if awaits else (),
        waited=must_wait,
        event_id=step.event.id,
        source=step.event.source,
        traceparent=step.event.traceparent,
    )
    state.open_request(request)
    if closed is not None:
        skip(step, request, "port_absent", closed)
    elif must_wait:
        _wait(step, request)
    else:
        step.runnable[request.key] = {}


def _choices(references: Iterable[Reference]) -> tuple[tuple[str, ...], ...]:
    choices = tuple(tuple(map(str, reference.paths)) for reference in references)
    return choices if any(len(paths) > 1 for paths in choices) else ()


def wait_for_turn(step: Step, request: Request, references: Iterable[Reference]) -> None:
    """Let a request wait that learned only now in whose order it runs; what it found stays bound."""
    bindings = known_values(lookup_of(step, request), references, {})
    _wait(step, replace(request, awaits={}, gates={}, bindings=bindings, waited=True))


def _wait(step: Step, request: Request) -> None:
    if step.state.ended and request.type not in ENDINGS:
        skip(step, request, "execution_ended", "the execution has ended, nothing can be waited for any more")
        return
    size = step.state.save_request(request)
    check_held(step, request, size)


def check_held(step: Step, request: Request, size: int) -> None:
    if size > step.limits.waiting_bytes:
        raise Rejection(
            "result_too_large",
            f"while {request.node_id!r} waits it would hold {size} bytes, {step.limits.waiting_bytes} are allowed; "
            "reference less",
        )


def lookup_of(step: Step, request: Request) -> LookupPath:
    """Return where a request that runs now finds its paths: what was bound, or the present store."""
    if not request.waited:
        return step.lookup_in(request.frame)
    waiting = step.state.requests.waiting(request.key)
    bound = request.bindings if waiting is None else waiting.bound
    return lambda path: bound.get(str(path), MISSING)


# -- how a request ends


def finish(step: Step, request: Request, outputs: JsonObject | None, *, ended: str = "answered") -> None:
    """Close `request`, note how it ended, and let `settle` set free what waited for it.

    `outputs` are by provided name; None when it gives nothing (failed, skipped).
    """
    state = step.state
    first = state.requests.first_in(request.domain) if request.domain is not None else None
    state.close_request(request)
    if request.node_id and not request.superseded and request.type not in ENDINGS:
        note_end(step, request.frame, request.node_id, request.type, ended, before=request.number)
    freed_domain = request.domain if first is not None and first.key == request.key else None
    step.endings.append(Ending(request.key, request.type, request.frame, freed_domain, ended, outputs or {}))


def note_end(step: Step, frame: str, node_id: str, type_: str, ended: str, *, before: int) -> None:
    """Note how the latest request of a node ended; what was asked `before` it does not count any more."""
    step.state.write_json(entries.node(frame, node_id), _end(type_, ended))
    if ended in ("failed", "skipped"):
        step.state.drop_variable(entries.variable(frame, (node_id,)))
    for older in step.state.requests.giving(frame, node_id, before=before):
        if older.node_id == node_id and not older.superseded:
            step.state.save_request(replace(older, superseded=True))


@lru_cache(maxsize=256)
def _end(type_: str, ended: str) -> bytes:
    return dumps({"ended": ended, "type": type_})


def sent(step: Step, request: Request) -> None:
    """Keep of a request whose command or inputs went out what its answer from outside will need."""
    kept: JsonObject = {
        name: request.body[name] for name in ("node_id", "activity_id", "iteration") if name in request.body
    }
    step.state.save_request(request.as_sent(kept))


def fail(step: Step, request: Request, rejection: Rejection) -> None:
    """Answer `request` with `node.failed`; references to it are null."""
    step.answer(request, "node.failed", {"code": rejection.reason, "message": rejection.message})
    finish(step, request, None, ended="failed")


def skip(step: Step, request: Request, code: str, message: str, *, ended: str = "skipped") -> None:
    """Answer `request` with `node.skipped`; what hangs on it by `after` is skipped too."""
    if request.type != SET_VARIABLES:
        step.answer(request, "node.skipped", {"code": code, "message": message})
    finish(step, request, None, ended=ended)


def answer_with(step: Step, request: Request, type_: str, data: JsonObject, outputs: JsonObject) -> None:
    """Store `outputs` under the request's node, answer it, and set free what waited.

    Raises `Rejection` (`store_too_large`, `too_deep`) before anything is done.
    """
    if not request.superseded:
        step.set_variable(request.frame, (request.node_id,), outputs)
        step.set_last_output({"frame": request.frame, "name": request.node_id})
    step.answer(request, type_, data)
    finish(step, request, {request.node_id: outputs})
