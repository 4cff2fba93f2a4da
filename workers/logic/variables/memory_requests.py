"""Memory and conversation requests of a run: a command out, its one outcome in, ports for other nodes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from schemas.address import Address, Scope, format_address
from schemas.envelope import Event
from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue
from schemas.names import check_name
from topics.catalog import Topic
from workers.logic.variables import entries, simulation
from workers.logic.variables.activities import after_of
from workers.logic.variables.open_requests import Request
from workers.logic.variables.references import MISSING
from workers.logic.variables.requests import (
    Asked,
    accept,
    answer_with,
    fail,
    frame_of,
    latest_in_domain,
    lookup_of,
    open_request,
    skip,
)
from workers.logic.variables.step import SOURCE, Step
from workers.logic.variables.templates import parse_template

_NOT_SENT = frozenset({"node_id", "iteration", "after"})
_NOT_PORTS = frozenset({"command_id", "command_source", "address"})
_WORKFLOW_GLOBAL = "workflow-global"
#: Outcomes after which the run knows the item's version (design 2.4, `read_version`).
_SEEN = frozenset({"memory.found", "memory.missing", "memory.written", "memory.updated"})


def asked(step: Step, body: JsonObject) -> None:
    """Take in a memory or conversation request."""
    node_id = str(body["node_id"])
    check_name(node_id, "the node id", step.limits)
    template = parse_template(_fields(body))
    is_conversation = step.event.type.startswith("conversation.")
    needs_start = is_conversation or body.get("scope") == "workflow" or isinstance(body.get("subject"), str)
    accept(
        step,
        Asked(
            type=step.event.type,
            node_id=node_id,
            frame=frame_of(body),
            body=body,
            references=template.references,
            after=after_of(body),
            domain=_domain_on_arrival(step, body, needs_start=needs_start),
            needs_start=needs_start,
        ),
    )


def _fields(body: Mapping[str, JsonValue]) -> JsonObject:
    return {name: value for name, value in body.items() if name not in _NOT_SENT}


def _domain_on_arrival(step: Step, body: JsonObject, *, needs_start: bool) -> str | None:
    """Return the ordering domain when it is known before anything is bound: then order holds from now on."""
    named = {name: body.get(name) for name in ("id", "key", "subject")}
    if parse_template(named).references or (needs_start and not step.state.started):
        return None
    try:
        return _address_of(step, step.event.type, body)
    except Rejection:
        return None  # said again, and answered, when the request runs


def _meta(step: Step) -> JsonObject:
    meta = step.state.read(entries.META)
    return meta if isinstance(meta, dict) else {}


def _address_of(step: Step, type_: str, fields: Mapping[str, JsonValue]) -> str:
    tenant = step.state.key.tenant
    if type_.startswith("conversation."):
        record = fields.get("id")
        return format_address(
            Address(tenant, "workflow", step.state.workflow, "conversation", _text(record), "messages")
        )
    subject = _subject_of(step, fields)
    kind, item_id = (None, None) if isinstance(subject, str) else (str(subject["kind"]), _text(subject["id"]))
    shared = fields["scope"] == "shared"
    workflow = None if shared else step.state.workflow
    scope: Scope = "shared" if shared else "workflow"
    return format_address(Address(tenant, scope, workflow, kind, item_id, _text(fields["key"]) or ""))


def _text(value: JsonValue) -> str | None:
    """Return an id as text; a reference may have given a number."""
    return None if value is None else str(value)


def _subject_of(step: Step, fields: Mapping[str, JsonValue]) -> JsonObject | str:
    """Resolve a kind to the run's subject of that kind. Raises `Rejection` (`subject_unknown`)."""
    subject = fields.get("subject")
    if isinstance(subject, dict):
        if subject.get("id") is None:
            raise Rejection("subject_unknown", f"the subject's id came out null: {subject.get('kind')!r}")
        return {"kind": subject["kind"], "id": _text(subject["id"])}
    if subject == _WORKFLOW_GLOBAL:
        return _WORKFLOW_GLOBAL
    subjects = cast("list[JsonObject]", _meta(step).get("subjects") or [])
    for known in subjects:
        if known["kind"] == subject:
            return known
    kinds = ", ".join(str(known["kind"]) for known in subjects) or "none"
    raise Rejection("subject_unknown", f"the run has no subject of kind {subject!r}; it has: {kinds}")


def run(step: Step, request: Request) -> None:
    """Send the command, now that everything it needs is known."""
    template = parse_template(_fields(request.body))
    rendered, reads = template.render(lookup_of(step, request), step.limits.result_bytes)
    fields = cast("JsonObject", rendered)
    _check_workflow(step, fields)
    address = _address_of(step, request.type, fields)
    if request.domain != address:
        previous = latest_in_domain(step, address)
        if previous is not None and previous != request.key:
            _queue_behind(step, request, address, previous)
            return
        request = replace(request, domain=address)
    step.note_reads(reads, request.node_id)
    if _lost_its_version(request, fields):
        skip(
            step, request, "expected_version_absent", "expected_version came out null: its source was skipped or empty"
        )
        return
    command = _command(step, request, fields, address)
    if simulation.settings_of(step.state) is not None:
        decided = simulation.answer(step, request, command)
        _apply_outcome(step, request, decided.type, decided.data)
        return
    step.send(Topic.MEMORY_COMMANDS, address, command)
    open_request(step, replace(request, sent=True, bindings={}, body=_kept(request)))


def _check_workflow(step: Step, fields: JsonObject) -> None:
    named = fields.get("workflow")
    if named is not None and named != step.state.workflow:
        raise Rejection(
            "workflow_mismatch",
            f"the request names the workflow {named!r}, the run is of {step.state.workflow!r}; leave the field out",
        )


def _kept(request: Request) -> JsonObject:
    """Return what the answer still needs of the request's body."""
    return {name: request.body[name] for name in ("node_id", "iteration") if name in request.body}


def _queue_behind(step: Step, request: Request, address: str, previous: str) -> None:
    """Only now is the address known, and an earlier request on it is unanswered: keep what was found, and wait."""
    lookup = lookup_of(step, request)
    bindings: dict[str, JsonValue] = {}
    for reference in parse_template(_fields(request.body)).references:
        for path in reference.paths:
            value = lookup(path)
            if value is not MISSING:
                bindings[str(path)] = value
    waiting = replace(request, domain=address, awaits={previous: ()}, bindings=bindings, waited=True)
    open_request(step, waiting)


def _lost_its_version(request: Request, fields: JsonObject) -> bool:
    """Tell whether the expected version was a reference that came out null (seed 003: then skip)."""
    asked_for = request.body.get("expected_version")
    return isinstance(asked_for, str) and "{{" in asked_for and fields.get("expected_version") in (None, "")


def _command(step: Step, request: Request, fields: JsonObject, address: str) -> Event:
    data = dict(fields)
    data["workflow"] = step.state.workflow
    if request.type.startswith("memory."):
        if data["scope"] == "shared":
            data.pop("workflow")
        data["subject"] = _subject_of(step, fields)
        data["key"] = _text(fields["key"])
        _complete_write(step, request, data, address)
    elif "id" in data:
        data["id"] = _text(data["id"])
    return Event(
        id=request.key,
        source=SOURCE,
        type=request.type,
        subject=step.state.key.execution_id,
        tenant=step.state.key.tenant,
        time=step.context.now.isoformat(),
        traceparent=request.traceparent,
        data=data,
    )


def _complete_write(step: Step, request: Request, data: JsonObject, address: str) -> None:
    """Fill in who writes, and what the run last saw there."""
    version = data.get("expected_version")
    if isinstance(version, str) and version.strip().isdigit():
        data["expected_version"] = int(version)
    writer: JsonObject = {
        "execution_id": step.state.key.execution_id,
        "workflow": step.state.workflow,
        "node_id": request.node_id,
    }
    user = step.state.lookup("", ("system", "user_id"))
    if isinstance(user, str):
        writer["user_id"] = user
    data["writer"] = writer
    known = step.state.read(entries.domain(address))
    if request.type in ("memory.write", "memory.update") and isinstance(known, dict) and "seen" in known:
        data["read_version"] = known["seen"]


def outcome(step: Step) -> bool:
    """Apply an outcome of memory-results; False when no open request asked for it."""
    body = step.event.data
    request = step.state.requests.get(str(body.get("command_id")))
    if request is None or body.get("command_source") != SOURCE or not request.sent:
        return False
    _apply_outcome(step, request, step.event.type, body)
    return True


def _apply_outcome(step: Step, request: Request, outcome_type: str, body: JsonObject) -> None:
    """Answer a request with the outcome of its command: outputs of its node, or a failure."""
    if outcome_type == "memory.rejected":
        fail(step, request, Rejection(str(body["code"]), str(body["message"])))
        return
    if outcome_type in _SEEN and request.domain is not None:
        _remember_seen(step, request.domain, 0 if outcome_type == "memory.missing" else body["version"])
    outputs: JsonObject = {name: value for name, value in body.items() if name not in _NOT_PORTS}
    match outcome_type:
        case "memory.missing":
            outputs = {"missing": True, "version": 0}
        case "memory.conflicted":
            outputs = {"conflict": True, "current_version": body["current_version"]}
    outputs["done"] = True
    try:
        answer_with(step, request, "node.answered", {"outputs": outputs}, outputs)
    except Rejection as rejection:
        fail(step, request, rejection)


def _remember_seen(step: Step, address: str, version: JsonValue) -> None:
    entry = entries.domain(address)
    known = step.state.read(entry)
    step.state.write(entry, {**(known if isinstance(known, dict) else {}), "seen": version})
