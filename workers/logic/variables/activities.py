"""Activities: inputs bound on request, outputs stored flat or as mapped (seed 000)."""

from collections.abc import Iterable
from functools import lru_cache
from typing import cast

from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue, dumps
from workers.logic.variables import entries
from workers.logic.variables.awaiting import Asked
from workers.logic.variables.bodies import template_of
from workers.logic.variables.mapping import Write, parse_target, plan_mapping, plan_values
from workers.logic.variables.open_requests import Request
from workers.logic.variables.references import MISSING, Lookup, Missing, Path, descend
from workers.logic.variables.requests import (
    ENDINGS,
    SET_VARIABLES,
    SETTERS,
    accept,
    finish,
    frame_of,
    lookup_of,
    named_node,
    note_end,
    sent,
    take_in,
)
from workers.logic.variables.step import Step

SCHEDULED = "activity.scheduled"
#: What `last_output` is after an output. The same words each time: what does not change is not written.
_FOLLOWS_PREVIOUS = dumps({"previous": True})
#: What is kept of each text of an error: it is for people, and no failure may fail for its size.
_ERROR_CHARACTERS = 1000


def scheduled(step: Step, body: JsonObject) -> None:
    """Take in a request for an activity's inputs; the activity is outstanding until its completion."""
    take_in(step, body, template_of(body.get("inputs") or {}).references)


def ready(step: Step, request: Request) -> None:
    """Bind the inputs and answer; the activity itself stays outstanding."""
    template = template_of(request.body.get("inputs") or {})
    inputs, reads = template.render(lookup_of(step, request), step.limits.result_bytes)
    step.check_result(inputs, f"the inputs of {request.node_id!r}")
    noted = step.note_reads(reads, request.node_id)
    missing: list[JsonValue] = [read.path for read in reads if not read.found]
    data: JsonObject = {"inputs": inputs, "reads": cast("list[JsonValue]", noted), "missing": missing}
    if "child_execution_id" in request.body:
        data["child_execution_id"] = request.body["child_execution_id"]
    step.answer(request, "activity.ready", data)
    sent(step, request)


def completed(step: Step, body: JsonObject, before: int | None = None) -> None:
    """Store an output: flat under the activity's id, or where `output_mapping` says, all or nothing."""
    store_output(
        step,
        named_node(step, body),
        frame_of(body),
        body["output"],
        mapping=cast("JsonObject | None", body.get("output_mapping")),
        variables=cast("JsonObject | None", body.get("variables")),
        before=before,
    )


def store_output(
    step: Step,
    activity_id: str,
    frame: str,
    output: JsonValue,
    *,
    mapping: JsonObject | None = None,
    variables: JsonObject | None = None,
    before: int | None = None,
) -> None:
    """Store what an activity or child gave. Raises `Rejection`; the caller then undoes everything.

    `variables` are data that the activity produced: they are set after the mapping, and nothing in them is expanded.
    Requests of the activity end that are numbered `before` it; None: all.
    """
    data = check_output(step, activity_id, output)
    stored: JsonValue | Missing = MISSING
    if mapping is None:
        step.set_raw_variable(frame, (activity_id,), data)
        stored = output
        step.state.write_json(entries.PREVIOUS, _pointer(frame, activity_id))
    else:
        _write_all(step, frame, _mapped(step, frame, mapping, activity_id, output))
        step.state.write(entries.PREVIOUS, {"value": output})
    step.state.write_json(entries.LAST, _FOLLOWS_PREVIOUS)
    if variables:
        _write_all(step, frame, plan_values(variables, own_scope(step, frame), step.limits))
    end_activity(step, activity_id, frame, stored, ended="answered", before=before)
    if mapping is not None:
        said: JsonObject = {"ended": "answered", "type": SCHEDULED, "ports": _ports(output)}
        if frame:
            said["mapped"] = cast("list[JsonValue]", sorted({target.partition(".")[0] for target in mapping}))
        step.state.write(entries.node(frame, activity_id), said)


def check_output(step: Step, activity_id: str, output: JsonValue) -> bytes:
    """Return an output as JSON. Raises `Rejection` (`output_too_large`)."""
    data = dumps(output)
    if len(data) > step.limits.output_bytes:
        raise Rejection(
            "output_too_large",
            f"the output of {activity_id!r} has {len(data)} bytes, {step.limits.output_bytes} are allowed; "
            "keep large values elsewhere and output a reference",
        )
    return data


def _ports(output: JsonValue) -> list[JsonValue]:
    """Return the names of what a mapped output gave, wherever it went: the ports that `after` may ask for."""
    return [name for name, value in output.items() if value is not None] if isinstance(output, dict) else []


@lru_cache(maxsize=4096)
def _pointer(frame: str, activity_id: str) -> bytes:
    return dumps({"frame": frame, "name": activity_id})


def _mapped(step: Step, frame: str, mapping: JsonObject, activity_id: str, output: JsonValue) -> tuple[Write, ...]:
    """Plan a mapping against the store as it is, plus the activity's own output under its id."""
    lookup = mapping_lookup(step, frame, activity_id, output)
    writes, reads = plan_mapping(mapping, lookup, own_scope(step, frame), step.limits)
    step.note_reads(reads, activity_id)
    return writes


def mapping_lookup(step: Step, frame: str, activity_id: str, output: JsonValue) -> Lookup:
    """Return where a mapping looks: the store as it is, plus the activity's own output under its id."""
    scope = step.lookup_in(frame)

    def lookup(path: Path) -> JsonValue | Missing:
        if path.segments[0] == activity_id:
            return descend(output, path.segments[1:])
        return scope(path)

    return lookup


def own_scope(step: Step, frame: str) -> Lookup:
    """Return the look-up of exactly the frame that is written to; it tells of what kind the values are."""
    return lambda path: step.state.shallow(frame, path.segments)


def _write_all(step: Step, frame: str, writes: Iterable[Write]) -> None:
    """Write what one event sets, within the limit of a resolved result."""
    left = step.limits.result_bytes
    for write in writes:
        data = dumps(write.value)
        left -= len(data)
        if left < 0:
            raise Rejection(
                "result_too_large",
                f"the variables to set have more than {step.limits.result_bytes} bytes together; reference less",
            )
        step.set_raw_variable(frame, write.segments, data)


def end_activity(
    step: Step,
    activity_id: str,
    frame: str,
    stored: JsonValue | Missing,
    *,
    ended: str,
    before: int | None = None,
) -> None:
    """Close the open requests of an activity; note how it ended where someone may ask.

    An engine runs what was answered `activity.ready`: that ends. Only where none was answered yet, as in a recorded
    run that is published in one go, a request ends that still waited.
    """
    known = step.state.requests.giving(frame, activity_id, before=before)
    open_ones = [request for request in known if request.type == SCHEDULED]
    outputs = {} if stored is MISSING else {activity_id: stored}
    for request in [request for request in open_ones if request.sent] or open_ones:
        if not request.sent:
            said: JsonObject = {
                "code": "already_ended",
                "message": f"{activity_id} ended before its inputs were bound",
            }
            step.answer(request, "node.skipped", said)
        finish(step, request, outputs, ended=ended)
    entry = entries.node(frame, activity_id)
    if frame or ended != "answered" or step.state.raw(entry) is not None:
        step.state.write(entry, {"ended": ended, "type": SCHEDULED})


def failed(step: Step, body: JsonObject, before: int | None = None) -> None:
    """Note a failure: references to the activity are null, what waited for it goes on or is skipped."""
    fail_activity(step, named_node(step, body), frame_of(body), before, error=body["error"])


def fail_activity(
    step: Step, activity_id: str, frame: str, before: int | None = None, *, error: JsonValue = None
) -> None:
    """End an activity without an output. The node keeps what its `error` says, for those who look."""
    step.state.drop_variable(entries.variable(frame, (activity_id,)))
    end_activity(step, activity_id, frame, MISSING, ended="failed", before=before)
    if error is not None:
        said: JsonObject = {"ended": "failed", "type": SCHEDULED, "error": _kept_error(error)}
        step.state.write(entries.node(frame, activity_id), said)


def _kept_error(error: JsonValue) -> JsonObject:
    """Return code and message of an error, each of a readable length; whatever has neither is its own message."""
    said = error if isinstance(error, dict) else {}
    kept: JsonObject = {name: _readable(said[name]) for name in ("code", "message") if said.get(name) is not None}
    return kept or {"message": _readable(error)}


def _readable(value: JsonValue) -> str:
    text = value if isinstance(value, str) else dumps(value).decode()
    return text if len(text) <= _ERROR_CHARACTERS else f"{text[: _ERROR_CHARACTERS - 1]}…"


def refuse(step: Step, body: JsonObject, rejection: Rejection) -> None:
    """Answer what cannot be carried out with `node.failed`: nothing of it is written, references are null.

    Raises `Rejection` where nobody can be answered: it is the node's own name that is wrong.
    """
    node_id = named_node(step, body)
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
    if step.event.type in ENDINGS:
        fail_activity(step, node_id, frame)
    else:
        note_end(step, frame, node_id, step.event.type, "failed", before=step.state.next_number())


# -- variables.set


def set_variables(step: Step, body: JsonObject) -> None:
    """Take in `variables.set`; it waits for what it references, and for what came earlier and sets the same name."""
    variables = cast("JsonObject", body["variables"])
    frame = frame_of(body)
    names = tuple(dict.fromkeys(parse_target(target, step.limits)[0] for target in variables))
    earlier = (request for name in names for request in step.state.requests.giving(frame, name)[-1:])
    accept(
        step,
        Asked(
            type=SET_VARIABLES,
            node_id="",
            frame=frame,
            body=body,
            references=template_of(variables).references,
            provides=names,
        ),
        also_awaits=[request.key for request in earlier if request.type in SETTERS],
    )


def apply_variables(step: Step, request: Request) -> None:
    """Write the variables of `variables.set`."""
    variables = cast("JsonObject", request.body["variables"])
    writes, reads = plan_mapping(variables, lookup_of(step, request), own_scope(step, request.frame), step.limits)
    step.note_reads(reads)
    _write_all(step, request.frame, writes)
    finish(step, request, {})
