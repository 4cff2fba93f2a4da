"""Activities: inputs bound on request, outputs stored flat or as mapped (seed 000)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue, dumps
from schemas.names import check_name
from workers.logic.variables import entries
from workers.logic.variables.mapping import Write, plan_mapping, plan_values
from workers.logic.variables.open_requests import Request
from workers.logic.variables.references import MISSING, Lookup, Missing, Path, descend
from workers.logic.variables.requests import Asked, accept, finish, frame_of, lookup_of, skip
from workers.logic.variables.step import Step
from workers.logic.variables.templates import parse_template

SCHEDULED = "activity.scheduled"


def scheduled(step: Step, body: JsonObject) -> None:
    """Take in a request for an activity's inputs; the activity is outstanding until its completion."""
    activity_id = str(body["activity_id"])
    check_name(activity_id, "the activity id", step.limits)
    template = parse_template(body.get("inputs") or {})
    accept(
        step,
        Asked(
            type=SCHEDULED,
            node_id=activity_id,
            frame=frame_of(body),
            body=body,
            references=template.references,
            after=after_of(body),
        ),
    )


def after_of(body: Mapping[str, JsonValue]) -> tuple[str, ...]:
    """Return what `after` names: a node, a port, or several."""
    after = body.get("after")
    if after is None:
        return ()
    return tuple(map(str, after)) if isinstance(after, list | tuple) else (str(after),)


def ready(step: Step, request: Request) -> None:
    """Bind the inputs and answer; the activity itself stays outstanding."""
    inputs, reads = parse_template(request.body.get("inputs") or {}).render(
        lookup_of(step, request), step.limits.result_bytes
    )
    step.check_result(inputs, f"the inputs of {request.node_id!r}")
    noted = step.note_reads(reads, request.node_id)
    missing: list[JsonValue] = [read.path for read in reads if not read.found]
    data: JsonObject = {"inputs": inputs, "reads": cast("list[JsonValue]", noted), "missing": missing}
    if "child_execution_id" in request.body:
        data["child_execution_id"] = request.body["child_execution_id"]
    step.answer(request, "activity.ready", data)
    step.state.save_request(replace(request, sent=True, bindings={}))


def completed(step: Step, body: JsonObject) -> None:
    """Store an output: flat under the activity's id, or where `output_mapping` says, all or nothing."""
    activity_id = str(body["activity_id"])
    check_name(activity_id, "the activity id", step.limits)
    store_output(
        step,
        activity_id,
        frame_of(body),
        body["output"],
        mapping=cast("JsonObject | None", body.get("output_mapping")),
        variables=cast("JsonObject | None", body.get("variables")),
    )


def store_output(
    step: Step,
    activity_id: str,
    frame: str,
    output: JsonValue,
    *,
    mapping: JsonObject | None = None,
    variables: JsonObject | None = None,
) -> None:
    """Store what an activity or child gave. Raises `Rejection`; the caller then undoes everything."""
    size = len(dumps(output))
    if size > step.limits.output_bytes:
        raise Rejection(
            "output_too_large",
            f"the output of {activity_id!r} has {size} bytes, {step.limits.output_bytes} are allowed; "
            "keep large values elsewhere and output a reference",
        )
    stored: JsonValue | Missing = MISSING
    if mapping is None:
        step.set_variable(frame, (activity_id,), output)
        previous: JsonObject = {"frame": frame, "name": activity_id}
        last = previous
        stored = output
    else:
        _write_all(step, frame, _mapped(step, frame, mapping, activity_id, output))
        previous, last = {"value": output}, {"previous": True}
    if variables:
        # An agent's own values are data: no text in them is a template.
        _write_all(step, frame, plan_values(variables, own_scope(step, frame), step.limits))
    step.state.write(entries.PREVIOUS, previous)
    step.set_last_output(last)
    end_activity(step, activity_id, frame, stored, ended="answered")


def _mapped(step: Step, frame: str, mapping: JsonObject, activity_id: str, output: JsonValue) -> tuple[Write, ...]:
    """Plan a mapping against the store as it is, plus the activity's own output under its id."""
    scope = step.lookup_in(frame)

    def lookup(path: Path) -> JsonValue | Missing:
        if path.segments[0] == activity_id:
            return descend(output, path.segments[1:])
        return scope(path)

    writes, reads = plan_mapping(mapping, lookup, own_scope(step, frame), step.limits)
    step.note_reads(reads)
    return writes


def own_scope(step: Step, frame: str) -> Lookup:
    """Return the look-up of exactly the frame that is written to."""
    return lambda path: step.state.variable(frame, path.segments)


def _write_all(step: Step, frame: str, writes: tuple[Write, ...]) -> None:
    for write in writes:
        step.set_variable(frame, write.segments, write.value)


def end_activity(step: Step, activity_id: str, frame: str, stored: JsonValue | Missing, *, ended: str) -> None:
    """Close the open requests of an activity; note how it ended where someone may ask."""
    open_ones = [
        request
        for request in step.state.requests.providing(activity_id)
        if request.type == SCHEDULED and request.frame == frame
    ]
    for request in reversed(open_ones):
        if not request.sent:
            skip(step, request, "already_ended", f"{activity_id} ended before its inputs were bound")
        else:
            finish(step, request, {} if stored is MISSING else {activity_id: stored}, ended=ended)
    entry = entries.node(frame, activity_id)
    if frame or ended != "answered" or step.state.raw(entry) is not None:
        step.state.write(entry, {"ended": ended, "type": SCHEDULED})


def failed(step: Step, body: JsonObject) -> None:
    """Note a failure: references to the activity are null, what waited for it goes on or is skipped."""
    activity_id = str(body["activity_id"])
    check_name(activity_id, "the activity id", step.limits)
    fail_activity(step, activity_id, frame_of(body))


def fail_activity(step: Step, activity_id: str, frame: str) -> None:
    """End an activity without an output."""
    step.state.remove_variable(frame, activity_id)
    end_activity(step, activity_id, frame, MISSING, ended="failed")


def refuse(step: Step, body: JsonObject, rejection: Rejection) -> None:
    """Answer what cannot be carried out with `node.failed`: nothing of it is written, references are null."""
    node_id = str(body.get("activity_id") or body["node_id"])
    frame = frame_of(body)
    data: JsonObject = {"node_id": node_id}
    if "activity_id" in body:
        data["activity_id"] = node_id
    if body.get("iteration"):
        data["iteration"] = body["iteration"]
    data.update(
        request_id=step.event.id,
        request_source=step.event.source,
        code=rejection.reason,
        message=rejection.message,
    )
    step.send_answer("node.failed", data)
    fail_activity(step, node_id, frame)


def set_variables(step: Step, body: JsonObject) -> None:
    """Take in `variables.set`; it waits as a request does when it references an outstanding node."""
    variables = cast("JsonObject", body["variables"])
    template = parse_template(variables)
    accept(
        step,
        Asked(
            type="variables.set",
            node_id="",
            frame=frame_of(body),
            body=body,
            references=template.references,
            provides=tuple(target.partition(".")[0] for target in variables) or ("",),
        ),
    )


def apply_variables(step: Step, request: Request) -> None:
    """Write the variables of `variables.set`."""
    variables = cast("JsonObject", request.body["variables"])
    writes, reads = plan_mapping(variables, lookup_of(step, request), own_scope(step, request.frame), step.limits)
    step.check_room(sum(len(dumps(write.value)) for write in writes))
    step.note_reads(reads)
    _write_all(step, request.frame, writes)
    provided: JsonObject = {}
    for name in request.provides:
        value = step.state.variable(request.frame, (name,)) if name else MISSING
        if value is not MISSING:
            provided[name] = value
    finish(step, request, provided)
