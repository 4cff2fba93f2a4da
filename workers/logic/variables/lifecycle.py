"""The life of an execution: started, ended when nothing is outstanding, finalized, its parent told."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from hashlib import sha256
from typing import cast

from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue, dumps
from topics.catalog import Topic
from workers.logic.variables import entries, simulation
from workers.logic.variables.activities import fail_activity, store_output
from workers.logic.variables.references import MISSING
from workers.logic.variables.requests import finish, frame_of, skip, start_arrived
from workers.logic.variables.state import Status
from workers.logic.variables.step import Step
from workers.logic.variables.templates import parse_template

_META_FIELDS = ("workflow", "subjects", "parent", "output_mapping", "contract", "simulation", "forked_from")
_CONTRACT_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, Decimal),
    "integer": (int,),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


def started(step: Step, body: JsonObject) -> None:
    """Open the store, or give the one that an early output opened its input."""
    state = step.state
    if state.raw(entries.META) is not None:
        raise Rejection(
            "already_started",
            f"the execution {state.key.execution_id!r} was started before by another event; "
            "start a new execution under a new id",
        )
    if body.get("forked_from"):
        _begin_as_fork(step, cast("JsonObject", body["forked_from"]))
    workflow = cast("JsonObject", body["workflow"])
    parent = cast("JsonObject | None", body.get("parent"))
    state.write(entries.META, {name: body[name] for name in _META_FIELDS if body.get(name) is not None})
    state.set_head(
        status=state.status if state.ended else "running",
        workflow=str(workflow["name"]),
        parent_execution_id=None if parent is None else str(parent["execution_id"]),
    )
    system = dict(cast("JsonObject", body.get("system") or {}))
    system["execution_id"] = state.key.execution_id
    step.set_variable("", ("input",), body.get("input") or {})
    step.set_variable("", ("system",), system)
    if body.get("event") is not None:
        step.set_variable("", ("event",), body["event"])
    simulation.seed(step, str(workflow["name"]))
    broken = _broken_promise(_contract(step, "inputs"), cast("JsonObject", body.get("input") or {}), "input")
    start_arrived(step)
    if broken is not None and not state.ended:
        end(step, "failed", error={"code": "contract_violated", "message": broken})


def _begin_as_fork(step: Step, source: JsonObject) -> None:
    """Copy another execution's variables as they were; open requests are not copied: nobody would answer them."""
    fork = step.context.fork
    if fork is None or not fork.found:
        raise Rejection(
            "fork_unknown",
            f"the execution {source['execution_id']!r} has no revision {source['revision']}; "
            "fork an existing revision of the same tenant",
        )
    state = step.state
    copied = 0
    for entry, data in fork.entries.items():
        if entry.startswith(entries.FORKED_PREFIXES):
            size = state.write_raw(entry, data)
            copied += size if entry.startswith(entries.PUBLIC_PREFIXES) else 0
    state.set_head(store_bytes=state.store_bytes + copied)


def _meta(step: Step) -> JsonObject:
    meta = step.state.read(entries.META)
    return meta if isinstance(meta, dict) else {}


def _contract(step: Step, side: str) -> Sequence[JsonObject]:
    contract = _meta(step).get("contract")
    fields = contract.get(side) if isinstance(contract, dict) else None
    return cast("list[JsonObject]", fields or [])


def _broken_promise(fields: Sequence[JsonObject], values: JsonObject, what: str) -> str | None:
    for field in fields:
        name = str(field["name"])
        value = values.get(name)
        if value is None:
            if field.get("required"):
                return f"the contract requires the {what} {name!r}, which is missing"
            continue
        expected = _CONTRACT_TYPES.get(str(field["type"]).lower())
        right = expected is None or (isinstance(value, expected) and (bool in expected or not isinstance(value, bool)))
        if not right:
            return (
                f"the contract says that the {what} {name!r} is a {field['type']}; it is {dumps(value)[:60].decode()}"
            )
    return None


# -- the end


def completed(step: Step, body: JsonObject) -> None:
    """Complete when nothing is outstanding; until then the event waits in the store."""
    step.state.write(entries.COMPLETION, {"output": body.get("output")})


def complete_if_idle(step: Step) -> None:
    """Let a waiting `execution.completed` take effect once nothing is outstanding."""
    waiting = step.state.read(entries.COMPLETION)
    if waiting is MISSING or step.state.ended or len(step.state.requests):
        return
    assert isinstance(waiting, dict)
    step.state.remove(entries.COMPLETION)
    try:
        output, reads = parse_template(waiting["output"]).render(step.lookup_in(""), step.limits.result_bytes)
        step.check_result(output, "the output")
    except Rejection as rejection:
        end(step, "failed", error={"code": rejection.reason, "message": rejection.message})
        return
    step.note_reads(reads)
    promised = output if isinstance(output, dict) else step.state.all_variables()
    broken = _broken_promise(_contract(step, "outputs"), promised, "output")
    if broken is not None:
        end(step, "failed", output=output, error={"code": "contract_violated", "message": broken})
    else:
        end(step, "completed", output=output)


def failed(step: Step, body: JsonObject) -> None:
    """End at once: waiting requests are skipped, answers that still come are late."""
    end(step, "failed", error=body.get("error"))


def cancelled(step: Step, body: JsonObject) -> None:
    """End at once, as `failed` does."""
    end(step, "cancelled", reason=body.get("reason"))


def end(
    step: Step,
    status: Status,
    *,
    output: JsonValue = None,
    error: JsonValue = None,
    reason: JsonValue = None,
) -> None:
    """Give the execution its final status and remember what `execution.finalized` says of it."""
    if step.state.ended:
        return
    for request in step.state.requests:
        if request.type == "activity.scheduled" and request.sent:
            finish(step, request, None, ended="abandoned")
        elif not request.sent:
            skip(step, request, "execution_ended", f"the execution was {status} before the request could run")
    step.endings.clear()
    step.runnable.clear()
    step.state.remove(entries.COMPLETION)
    said: JsonObject = {"status": status, "output": output}
    if error is not None:
        said["error"] = error
    if reason is not None:
        said["reason"] = reason
    step.state.set_head(status=status)
    step.state.write(entries.FINAL, said)
    step.ended_now = True


def finalize(step: Step) -> None:
    """Say `execution.finalized`: at the end, and again after each late revision."""
    said = step.state.read(entries.FINAL)
    assert isinstance(said, dict)
    data: JsonObject = {**said, "revision": step.state.revision, "late": not step.ended_now}
    if simulation.settings_of(step.state) is not None:
        data["effects"] = simulation.effects_of(step.state)
    variables = step.state.all_variables()
    encoded = dumps(variables)
    if len(encoded) <= step.limits.final_variables_bytes:
        data["variables"] = variables
    else:
        data["variables_bytes"] = len(encoded)
        data["variables_sha256"] = sha256(encoded).hexdigest()
        data["variables_at"] = f"tally execution show {step.state.key.execution_id} --at {step.state.revision}"
    step.send(
        Topic.VARIABLE_UPDATES,
        step.state.key.execution_id,
        step.caused("execution.finalized", "finalized", data),
    )
    if step.ended_now:
        _tell_parent(step, said)


def _tell_parent(step: Step, said: JsonObject) -> None:
    """Publish `child.completed` to the parent's key: its node gets the mapped outputs, nothing else."""
    meta = _meta(step)
    parent = meta.get("parent")
    if not isinstance(parent, dict):
        return
    outputs: JsonValue = said["output"] if isinstance(said["output"], dict) else {}
    status, error = said["status"], said.get("error")
    mapping = meta.get("output_mapping")
    if status == "completed" and mapping is not None:
        try:
            outputs, reads = parse_template(mapping).render(step.lookup_in(""), step.limits.result_bytes)
        except Rejection as rejection:
            outputs, status, error = {}, "failed", {"code": rejection.reason, "message": rejection.message}
        else:
            step.note_reads(reads)
    data: JsonObject = {
        "node_id": parent["node_id"],
        "child_execution_id": step.state.key.execution_id,
        "status": status,
        "outputs": outputs if status == "completed" else {},
    }
    if parent.get("iteration"):
        data["iteration"] = parent["iteration"]
    if error is not None:
        data["error"] = error
    parent_id = str(parent["execution_id"])
    event = step.caused("child.completed", "child", data)
    step.send(Topic.EXECUTION_EVENTS, parent_id, step.addressed_to(event, parent_id))


def child_completed(step: Step, body: JsonObject) -> None:
    """Give the parent's node what its child gave. Raises `Rejection` (`unknown_parent`)."""
    if step.state.revision == 0:
        raise Rejection(
            "unknown_parent",
            f"the child {body['child_execution_id']!r} names the parent {step.state.key.execution_id!r}, "
            "which was never seen; publish the parent's events first",
        )
    node_id = str(body["node_id"])
    if body["status"] == "completed":
        store_output(step, node_id, frame_of(body), body["outputs"])
    else:
        fail_activity(step, node_id, frame_of(body))
