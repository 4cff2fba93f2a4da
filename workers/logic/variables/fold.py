"""The fold of a variable store: one event in, one revision out; more only where it sets free too much for one.

Replaying the changes of revisions 1 to N gives the store at N, and any cut of the same events into batches
gives the same revisions: `apply` looks at nothing but its arguments.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, cast
from uuid import UUID

from schemas.envelope import Event
from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue, dumps
from schemas.identity import key_of
from schemas.registry import OUTCOME_TYPES
from workers.logic.memory.timestamps import timestamp
from workers.logic.variables import (
    activities,
    decisions,
    endings,
    lifecycle,
    loops,
    memory_requests,
    scratchpad_requests,
)
from workers.logic.variables.open_requests import Request
from workers.logic.variables.requests import ENDINGS
from workers.logic.variables.rest import CAUSE_FIELDS, leave, taken_up
from workers.logic.variables.settling import settle
from workers.logic.variables.state import ExecutionState
from workers.logic.variables.step import Context, Outgoing, Step

Arrival = Callable[[Step, JsonObject], None]
Run = Callable[[Step, Request], None]

_ARRIVALS: Mapping[str, Arrival] = {
    "execution.started": lifecycle.started,
    "execution.completed": lifecycle.completed,
    "execution.failed": lifecycle.failed,
    "execution.cancelled": lifecycle.cancelled,
    "child.completed": endings.arrived,
    "activity.scheduled": activities.scheduled,
    "activity.completed": endings.arrived,
    "activity.failed": endings.arrived,
    "variables.set": activities.set_variables,
    "condition.evaluate": decisions.asked,
    "parallel.join": loops.join_asked,
    "foreach.open": loops.open_asked,
    "foreach.close": loops.close_asked,
    "scratchpad.write": scratchpad_requests.asked,
    "scratchpad.append": scratchpad_requests.asked,
    "scratchpad.read": scratchpad_requests.asked,
    "scratchpad.summarize": scratchpad_requests.asked,
    "scratchpad.clear": scratchpad_requests.asked,
    "memory.write": memory_requests.asked,
    "memory.read": memory_requests.asked,
    "memory.forget": memory_requests.asked,
    "memory.update": memory_requests.asked,
    "conversation.add": memory_requests.asked,
    "conversation.get": memory_requests.asked,
    "conversation.get_all": memory_requests.asked,
    "conversation.delete": memory_requests.asked,
}
_RUNS: Mapping[str, Run] = {
    "activity.scheduled": activities.ready,
    "child.completed": endings.run,
    "activity.completed": endings.run,
    "activity.failed": endings.run,
    "variables.set": activities.apply_variables,
    "condition.evaluate": decisions.decide,
    "parallel.join": loops.join,
    "foreach.open": loops.open_loop,
    "foreach.close": loops.close_loop,
}
#: Events without a node that could be answered: what is wrong with them goes to the dead letters.
WITHOUT_NODE = frozenset(
    {"execution.started", "execution.completed", "execution.failed", "execution.cancelled", "variables.set"}
)
#: Refusals of what no node of this execution could be blamed for.
_REFUSED_WHOLE = frozenset({"unknown_parent"})
#: Refusals of an output that cannot be kept: the original bytes are kept as a dead letter.
_KEPT_AS_DEAD_LETTER = frozenset({"output_too_large", "store_too_large", "result_too_large", "too_deep"})


class Revision(NamedTuple):
    """What one event did, or a part of it: `said` holds cause, reads and `late`, `body` is the same as JSON.

    `changes` are the entries that it set or deleted.
    `dead_letter` is a code and message when the event was recorded but its content could not be kept.
    """

    revision: int
    said: JsonObject
    body: bytes
    changes: dict[str, bytes | None]
    outgoing: tuple[Outgoing, ...]
    dead_letter: tuple[str, str] | None = None
    #: The key of the revision with which the event goes on: nothing may be applied before it.
    rest: UUID | None = None


def apply(state: ExecutionState, event: Event, *, context: Context) -> Revision | None:
    """Apply `event`, whose data is valid, to `state`.

    Returns None when there is nothing to record (an outcome that no open request asked for).
    Raises `Rejection`, with `state` as it was, when the event belongs to the dead letters.
    """
    state.begin()
    try:
        return _applied(Step(state, event, context, context.key or key_of(event)))
    except Rejection as rejection:
        state.undo()
        if event.type in WITHOUT_NODE or rejection.reason in _REFUSED_WHOLE:
            raise
        return _refused(Step(state, event, context, context.key or key_of(event)), rejection)
    except BaseException:
        state.undo()
        raise


def go_on(state: ExecutionState, *, context: Context) -> Revision:
    """Do the rest of the event that was applied before, or a part of it: what one revision may bring about."""
    state.begin()
    try:
        return _closed(taken_up(state, context), late=state.ended)
    except BaseException:
        state.undo()
        raise


def _applied(step: Step) -> Revision | None:
    event, late = step.event, step.state.ended
    if event.type in OUTCOME_TYPES:
        if not memory_requests.outcome(step):
            step.state.undo()
            return None
    else:
        _ARRIVALS[event.type](step, event.data)
    return _closed(step, late=late)


def _refused(step: Step, rejection: Rejection) -> Revision:
    """Record that a request or output was refused: its node failed, what waited for it goes on."""
    event, late = step.event, step.state.ended
    step.state.begin()
    activities.refuse(step, event.data, rejection)
    if event.type in ENDINGS and rejection.reason in _KEPT_AS_DEAD_LETTER:
        step.failure = (rejection.reason, rejection.message)
    return _closed(step, late=late)


def _closed(step: Step, *, late: bool) -> Revision:
    """Run what the event set free, end the execution if it may end, and number the revision."""
    state = step.state
    settle(step, _run)
    rest = leave(step)
    lifecycle.complete_if_idle(step)
    revision = state.next_revision()
    if state.ended:
        lifecycle.finalize(step)
    said = _body(step, late=late, rest=rest)
    return Revision(
        revision=revision,
        said=said,
        body=dumps(said),
        outgoing=tuple(step.outgoing),
        changes=state.keep(),
        dead_letter=step.failure,
        rest=rest,
    )


def _run(step: Step, request: Request) -> None:
    if request.type.startswith(("memory.", "conversation.")):
        memory_requests.run(step, request)
    elif request.type.startswith("scratchpad."):
        scratchpad_requests.run(step, request)
    else:
        _RUNS[request.type](step, request)


def _body(step: Step, *, late: bool, rest: UUID | None) -> JsonObject:
    event = step.event
    cause: JsonObject = {"id": event.id, "source": event.source, "type": event.type}
    for name in CAUSE_FIELDS:
        if event.data.get(name):
            cause[name] = event.data[name]
    if step.part > 1:
        cause["part"] = step.part
    body: JsonObject = {"cause": cause, "reads": cast("list[JsonValue]", step.reads), "late": late}
    if event.traceparent is not None:
        body["traceparent"] = event.traceparent
    body["at"] = timestamp(step.context.now)
    if rest is not None:
        body["rest"] = str(rest)
    return body
