"""The life of an execution: started, ended when nothing is outstanding, finalized, its parent told."""

from collections import deque
from collections.abc import Mapping
from hashlib import sha256
from typing import cast

from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue, dumps, loads
from schemas.names import check_name
from topics.catalog import Topic
from workers.logic.variables import contracts, entries, simulation
from workers.logic.variables.activities import fail_activity, store_output
from workers.logic.variables.bodies import template_of
from workers.logic.variables.head import Status
from workers.logic.variables.open_requests import START
from workers.logic.variables.requests import ENDINGS, finish, frame_of, skip
from workers.logic.variables.step import Ending, ForkSource, Step

_META_FIELDS = ("workflow", "subjects", "parent", "output_mapping", "contract", "simulation", "forked_from")


def started(step: Step, body: JsonObject) -> None:
    """Open the store, or give the one that an early output opened its input."""
    state = step.state
    if state.started:
        raise Rejection(
            "already_started",
            f"the execution {state.key.execution_id!r} was started before by another event; "
            "start a new execution under a new id",
        )
    fork = _source_of(step, cast("JsonObject", body["forked_from"])) if body.get("forked_from") else None
    if fork is not None:
        _begin_with(step, fork)
    workflow = cast("JsonObject", body["workflow"])
    parent = cast("JsonObject | None", body.get("parent"))
    state.write(entries.META, {name: body[name] for name in _META_FIELDS if body.get(name) is not None})
    state.start(
        str(workflow["name"]),
        None if parent is None else str(parent["execution_id"]),
        simulated=body.get("simulation") not in (None, False),
        inherited=0 if fork is None else cast("int", cast("JsonObject", body["forked_from"])["revision"]),
    )
    _write_scopes(step, body, forked=fork is not None)
    simulation.seed(step, str(workflow["name"]))
    given = step.state.variable("", ("input",))
    broken = contracts.broken_promise(_meta(step), "inputs", cast("JsonObject", given))
    step.endings.append(Ending(START, "execution.started", "", None, "answered", {}))
    if broken is not None:
        end(step, "failed", error={"code": "contract_violated", "message": broken})


def _write_scopes(step: Step, body: JsonObject, *, forked: bool) -> None:
    """Write `input`, `system` and `event`; of what a fork does not say anew it keeps the source's."""
    system = step.state.variable("", ("system",)) if forked else {}
    system = {**(system if isinstance(system, dict) else {}), **cast("JsonObject", body.get("system") or {})}
    system["execution_id"] = step.state.key.execution_id
    if body.get("input") is not None or not step.state.has_variable("", "input"):
        step.set_variable("", ("input",), body.get("input") or {})
    step.set_variable("", ("system",), system)
    if body.get("event") is not None:
        step.set_variable("", ("event",), body["event"])


def _source_of(step: Step, source: JsonObject) -> ForkSource:
    fork = step.context.fork
    if fork is None or not fork.found:
        raise Rejection(
            "fork_unknown",
            f"the execution {source['execution_id']!r} has no revision {source['revision']}; "
            "fork an existing revision of the same tenant",
        )
    return fork


def _begin_with(step: Step, fork: ForkSource) -> None:
    """Copy another execution's variables as they were; what came for the fork before its start stays on top.

    Open requests are not copied: nobody would answer them. The changes name every entry of the source and of the fork,
    so that replaying them after the inherited revisions gives the fork's store and nothing else.
    """
    state = step.state
    taken = entries.FORKED_PREFIXES if _simulated(fork) else (*entries.FORKED_PREFIXES, entries.SEEN)
    copied = {entry for entry in fork.entries if entry.startswith(taken) and not state.holds(entry)}
    for entry in sorted(fork.entries.keys() - copied):
        if state.raw(entry) is None:
            state.note_absent(entry)
    for entry in state.entries_below(""):
        state.write_raw(entry, cast("bytes", state.raw(entry)))
    # Ancestors first: a variable replaces what overlays it.
    for entry in sorted(copied, key=lambda entry: (entry.count("/"), entry)):
        if entry.startswith(entries.PUBLIC_PREFIXES):
            state.put_variable(entry, fork.entries[entry], 0)
        else:
            state.write_raw(entry, fork.entries[entry])


def _simulated(fork: ForkSource) -> bool:
    meta = cast("JsonObject", loads(fork.entries.get(entries.META, b"{}")))
    return meta.get("simulation") not in (None, False)


def _meta(step: Step) -> JsonObject:
    meta = step.state.read(entries.META)
    return meta if isinstance(meta, dict) else {}


# -- the end


def completed(step: Step, body: JsonObject) -> None:
    """Complete when nothing is outstanding; until then the event waits in the store. The first one counts."""
    if not step.state.ended and step.state.raw(entries.COMPLETION) is None:
        step.state.write(entries.COMPLETION, {"output": body.get("output")})


def complete_if_idle(step: Step) -> None:
    """Let a waiting `execution.completed` take effect once it was started and nothing is outstanding."""
    state = step.state
    if state.ended or not state.started or len(state.requests):
        return
    waiting = state.read(entries.COMPLETION)
    if not isinstance(waiting, dict):
        return
    meta = _meta(step)
    try:
        output = _rendered(step, waiting["output"], "the output")
        mapping = meta.get("output_mapping")
        given = output if mapping is None else _rendered(step, mapping, "the mapped outputs")
    except Rejection as rejection:
        end(step, "failed", error={"code": rejection.reason, "message": rejection.message})
        return
    promised = given if isinstance(given, dict) else state.all_variables()
    broken = contracts.broken_promise(meta, "outputs", promised)
    if broken is not None:
        end(step, "failed", output=output, error={"code": "contract_violated", "message": broken})
        return
    step.given = given if isinstance(given, dict) else {}
    end(step, "completed", output=output)


def _rendered(step: Step, value: JsonValue, what: str) -> JsonValue:
    rendered, reads = template_of(value).render(step.lookup_in(""), step.limits.result_bytes)
    step.check_result(rendered, what)
    step.note_reads(reads)
    return rendered


def failed(step: Step, body: JsonObject) -> None:
    """End at once: waiting requests are skipped, answers that still come are late."""
    step.check_result(body["error"], "the error")
    end(step, "failed", error=body["error"])


def cancelled(step: Step, body: JsonObject) -> None:
    """End at once, as `failed` does."""
    step.check_result(body.get("reason"), "the reason")
    end(step, "cancelled", reason=body.get("reason"))


def end(
    step: Step,
    status: Status,
    *,
    output: JsonValue = None,
    error: JsonValue = None,
    reason: JsonValue = None,
) -> None:
    """Give the execution its final status and remember what `execution.finalized` says of it; the first end counts."""
    if step.state.ended:
        return
    for request in step.state.requests:
        if request.type in ENDINGS:
            continue
        if not request.sent:
            why = f"the execution was {status} before the request could run"
            skip(step, request, "execution_ended", why, ended="abandoned")
        elif request.type == "activity.scheduled":
            finish(step, request, None, ended="abandoned")
    # Of what waited for the start only early outputs are left.
    step.endings = deque(ending for ending in step.endings if ending.key == START)
    step.state.remove(entries.COMPLETION)
    said: JsonObject = {"status": status, "output": output}
    if error is not None:
        said["error"] = error
    if reason is not None:
        said["reason"] = reason
    step.state.end(status)
    step.state.write(entries.FINAL, said)
    step.ended_now = True


def finalize(step: Step) -> None:
    """Say `execution.finalized`: at the end, and again after each late revision."""
    said = cast("JsonObject", step.state.read(entries.FINAL))
    data: JsonObject = {**said, "revision": step.state.revision, "late": not step.ended_now}
    if step.state.simulated:
        effects = simulation.effects_of(step.state)
        _say_or_measure(step, data, "effects", effects, step.limits.result_bytes)
    _say_or_measure(step, data, "variables", step.state.all_variables(), step.limits.final_variables_bytes)
    step.send(
        Topic.VARIABLE_UPDATES,
        step.state.key.execution_id,
        step.caused("execution.finalized", "finalized", data),
    )
    # A run that was ended before it was started could not know its parent.
    if step.ended_now or (step.event.type == "execution.started" and step.part == 1):
        _tell_parent(step, said)


def _say_or_measure(step: Step, data: JsonObject, name: str, value: JsonValue, most_bytes: int) -> None:
    """Say a value, or where it is too large its size and digest, and how to fetch it."""
    encoded = dumps(value)
    if len(encoded) <= most_bytes:
        data[name] = value
    else:
        data[f"{name}_bytes"] = len(encoded)
        data[f"{name}_sha256"] = sha256(encoded).hexdigest()
        data[f"{name}_at"] = f"tally execution show {step.state.key.execution_id} --at {step.state.revision}"


def _tell_parent(step: Step, said: Mapping[str, JsonValue]) -> None:
    """Publish `child.completed` to the parent's key: its node gets the mapped outputs, nothing else."""
    parent = _meta(step).get("parent")
    if not isinstance(parent, dict):
        return
    data: JsonObject = {
        "node_id": parent["node_id"],
        "child_execution_id": step.state.key.execution_id,
        "status": said["status"],
        "outputs": step.given,
    }
    if parent.get("iteration"):
        data["iteration"] = parent["iteration"]
    if said.get("error") is not None:
        data["error"] = said["error"]
    parent_id = str(parent["execution_id"])
    step.send(Topic.EXECUTION_EVENTS, parent_id, step.caused("child.completed", "child", data, subject=parent_id))


def child_completed(step: Step, body: JsonObject, before: int | None = None) -> None:
    """Give the parent's node what its child gave. Raises `Rejection` (`unknown_parent`)."""
    if step.state.revision == 0:
        raise Rejection(
            "unknown_parent",
            f"the child {body['child_execution_id']!r} names the parent {step.state.key.execution_id!r}, "
            "which was never seen; publish the parent's events first",
        )
    node_id = str(body["node_id"])
    check_name(node_id, "the parent's node id", step.limits)
    if body["status"] == "completed":
        store_output(step, node_id, frame_of(body), body["outputs"], before=before)
    else:
        fail_activity(step, node_id, frame_of(body), before, error=body.get("error"))
