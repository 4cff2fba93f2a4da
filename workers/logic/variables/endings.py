"""What ends an activity, also where it overtakes `execution.started`.

Before the start nobody knows `input`, `system` and `event`. An output whose mapping needs them waits for the start, and
what ends an activity after it waits behind it, so that all of them are applied in their order: as if they had come
just after the start. Nothing of them is lost when the run ends first, or is never started.
"""

from collections.abc import Callable, Mapping
from typing import Final, cast

from schemas.errors import Rejection
from schemas.exact_json import JsonObject
from workers.logic.variables import activities, lifecycle
from workers.logic.variables.awaiting import START_ROOTS
from workers.logic.variables.bodies import template_of
from workers.logic.variables.mapping import parse_target
from workers.logic.variables.open_requests import Request
from workers.logic.variables.references import MISSING
from workers.logic.variables.requests import finish, frame_of, named_node, take_in
from workers.logic.variables.step import Step

#: In whose order those run that wait for the start; no address and no scratchpad namespace is called so.
_DOMAIN: Final = "endings"
_APPLY: Final[Mapping[str, Callable[[Step, JsonObject, int | None], None]]] = {
    "activity.completed": activities.completed,
    "activity.failed": activities.failed,
    "child.completed": lifecycle.child_completed,
}


def arrived(step: Step, body: JsonObject) -> None:
    """Apply what ends an activity, or let it wait for the start."""
    if not step.state.started and _must_wait(step, body):
        _hold(step, body)
    else:
        _APPLY[step.event.type](step, body, None)


def run(step: Step, request: Request) -> None:
    """Apply what waited. What cannot be kept fails its activity, as it would have on arrival."""
    body, mark = request.body, step.mark()
    gave = request.type == "activity.completed" or body.get("status") == "completed"
    try:
        _APPLY[request.type](step, body, request.number)
    except Rejection as rejection:
        step.rollback(mark)
        step.answer(request, "node.failed", {"code": rejection.reason, "message": rejection.message})
        activities.fail_activity(step, request.node_id, request.frame, request.number)
        gave = False
    finish(step, request, {}, ended="answered" if gave else "failed")


def _must_wait(step: Step, body: JsonObject) -> bool:
    if step.state.requests.first_in(_DOMAIN) is not None:
        return True
    mapping = body.get("output_mapping")
    return isinstance(mapping, dict) and _needs_start(step, body, mapping)


def _needs_start(step: Step, body: JsonObject, mapping: JsonObject) -> bool:
    lookup = activities.mapping_lookup(step, frame_of(body), str(body["activity_id"]), body["output"])
    for reference in template_of(mapping).references:
        for path in reference.paths:
            if path.segments[0] in START_ROOTS:
                return True
            if lookup(path) not in (MISSING, None):
                break
    return False


def _hold(step: Step, body: JsonObject) -> None:
    """Keep it whole. Raises `Rejection` for what could not be kept after the start either."""
    node_id = named_node(step, body)
    if "output" in body:
        activities.check_output(step, node_id, body["output"])
    targets = [
        *cast("JsonObject", body.get("output_mapping") or {}),
        *cast("JsonObject", body.get("variables") or {}),
    ]
    set_names = (parse_target(target, step.limits)[0] for target in targets)
    take_in(step, body, (), provides=tuple(dict.fromkeys((node_id, *set_names))), domain=_DOMAIN, needs_start=True)
