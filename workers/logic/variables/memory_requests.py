"""Memory and conversation requests of a run: a command out, its one outcome in, ports for other nodes."""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import cast

from schemas.address import Scope
from schemas.envelope import Event
from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue
from topics.catalog import Topic
from workers.logic.memory.commands import item_address
from workers.logic.memory.conversations import record_address, records_address
from workers.logic.memory.timestamps import timestamp
from workers.logic.variables import entries, simulation
from workers.logic.variables.bodies import template_of
from workers.logic.variables.open_requests import Request
from workers.logic.variables.requests import (
    answer_with,
    fail,
    lookup_of,
    sent,
    skip,
    take_in,
    wait_for_turn,
)
from workers.logic.variables.step import SOURCE, Step
from workers.logic.variables.templates import Template, as_text

_NOT_SENT = frozenset({"node_id", "iteration", "after"})
_NOT_PORTS = frozenset({"command_id", "command_source", "address"})
_LIST_RECORDS = "conversation.get_all"
_CHANGING_RECORDS = frozenset({"conversation.add", "conversation.delete"})
_WORKFLOW_GLOBAL = "workflow-global"
#: Outcomes after which the run knows the item's version: its next write carries it as `read_version`.
_SEEN = frozenset({"memory.found", "memory.missing", "memory.written", "memory.updated"})
#: A version of more digits is none: the memory worker refuses it by name.
_VERSION_DIGITS = 18


def asked(step: Step, body: JsonObject) -> None:
    """Take in a memory or conversation request."""
    step.template = _template(body)
    is_conversation = step.event.type.startswith("conversation.")
    needs_start = is_conversation or body.get("scope") == "workflow" or isinstance(body.get("subject"), str)
    take_in(
        step,
        body,
        step.template.references,
        domain=_domain_on_arrival(step, body, needs_start=needs_start),
        needs_start=needs_start,
        also_awaits=_records_being_changed(step) if step.event.type == _LIST_RECORDS else (),
    )


def _records_being_changed(step: Step) -> list[str]:
    """Return the open requests that a list of all records comes after, as it does in the run's own order."""
    return [request.key for request in step.state.requests if request.type in _CHANGING_RECORDS]


def _template(body: Mapping[str, JsonValue]) -> Template:
    return template_of({name: value for name, value in body.items() if name not in _NOT_SENT})


def _domain_on_arrival(step: Step, body: JsonObject, *, needs_start: bool) -> str | None:
    """Return the ordering domain when it is known before anything is bound: then order holds from now on."""
    if needs_start and not step.state.started:
        return None
    if _may_hold_references(body.get("key")) or _may_hold_references(body.get("subject", body.get("id"))):
        return None
    try:
        return _address_of(step, step.event.type, body)
    except Rejection:
        return None  # said again, and answered, when the request runs


def _may_hold_references(value: JsonValue) -> bool:
    if isinstance(value, dict):
        return any(map(_may_hold_references, value.values()))
    return isinstance(value, str) and "{{" in value


def _meta(step: Step) -> JsonObject:
    meta = step.state.read(entries.META)
    return meta if isinstance(meta, dict) else {}


def _address_of(step: Step, type_: str, fields: Mapping[str, JsonValue]) -> str:
    tenant, workflow = step.state.key.tenant, step.state.workflow
    if type_ == _LIST_RECORDS:
        return records_address(tenant, str(workflow))
    if type_.startswith("conversation."):
        return record_address(tenant, str(workflow), _text(fields.get("id"), "the conversation's id"))
    subject = _subject_of(step, fields)
    scope: Scope = "shared" if fields["scope"] == "shared" else "workflow"
    return item_address(
        tenant,
        scope=scope,
        workflow=None if scope == "shared" else workflow,
        subject=None if isinstance(subject, str) else (str(subject["kind"]), str(subject["id"])),
        key=_text(fields["key"], "the key"),
    )


def _text(value: JsonValue, what: str) -> str:
    """Return a part of an address as text; a reference may have given a number, never nothing or an object."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | Decimal):
        return as_text(value)
    came = "null" if value is None else "a list or an object"
    raise Rejection("address_invalid", f"{what} came out as {came}; reference a text or a number")


def _subject_of(step: Step, fields: Mapping[str, JsonValue]) -> JsonObject | str:
    """Resolve a kind to the run's subject of that kind. Raises `Rejection` (`subject_unknown`, `address_invalid`)."""
    subject = fields.get("subject")
    if isinstance(subject, dict):
        return {
            "kind": _text(subject.get("kind"), "the subject's kind"),
            "id": _text(subject.get("id"), "the subject's id"),
        }
    if subject == _WORKFLOW_GLOBAL:
        return _WORKFLOW_GLOBAL
    subjects = cast("list[JsonObject]", _meta(step).get("subjects") or [])
    for known in subjects:
        if known["kind"] == subject:
            return known
    kinds = ", ".join(str(known["kind"]) for known in subjects) or "none"
    raise Rejection("subject_unknown", f"the run has no subject of kind {subject!r}; it has: {kinds}")


def run(step: Step, request: Request) -> None:
    """Send the command, now that everything it needs is known; a simulated run answers it itself."""
    template = (step.template if request.body is step.event.data else None) or _template(request.body)
    rendered, reads = template.render(lookup_of(step, request), step.limits.result_bytes)
    step.check_result(rendered, f"the request of {request.node_id!r}")
    fields = cast("JsonObject", rendered)
    _check_workflow(step, fields)
    address = request.domain
    if address is None:
        address = _address_of(step, request.type, fields)
        is_free = step.state.requests.first_in(address) is None
        request = replace(request, domain=address, turn=step.state.next_number())
        step.state.open_request(request)
        if not is_free:
            wait_for_turn(step, request, template.references)
            return
    step.note_reads(reads, request.node_id)
    if _lost_its_version(request, fields):
        skip(
            step, request, "expected_version_absent", "expected_version came out null: its source was skipped or empty"
        )
        return
    command = _command(step, request, fields, address)
    if step.state.simulated:
        decided = simulation.answer(step, request, command)
        _apply_outcome(step, request, decided.type, decided.data)
        return
    step.send(Topic.MEMORY_COMMANDS, address, command)
    sent(step, request)


def _check_workflow(step: Step, fields: JsonObject) -> None:
    named = fields.get("workflow")
    if named is not None and named != step.state.workflow:
        raise Rejection(
            "workflow_mismatch",
            f"the request names the workflow {named!r}, the run is of {step.state.workflow!r}; leave the field out",
        )


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
        data["key"] = _text(fields["key"], "the key")
        _complete_write(step, request, data, address)
    elif "id" in data:
        data["id"] = _text(data["id"], "the conversation's id")
    return Event(
        id=request.key,
        source=SOURCE,
        type=request.type,
        subject=step.state.key.execution_id,
        tenant=step.state.key.tenant,
        time=timestamp(step.context.now),
        traceparent=request.traceparent,
        data=data,
    )


def _complete_write(step: Step, request: Request, data: JsonObject, address: str) -> None:
    """Fill in who writes, and what the run last saw there."""
    version = data.get("expected_version")
    if isinstance(version, str) and (digits := version.strip()).isascii() and digits.isdigit():
        data["expected_version"] = int(digits) if len(digits) <= _VERSION_DIGITS else version
    writer: JsonObject = {
        "execution_id": step.state.key.execution_id,
        "workflow": step.state.workflow,
        "node_id": request.node_id,
    }
    user = step.state.lookup("", ("system", "user_id"))
    if isinstance(user, str):
        writer["user_id"] = user
    data["writer"] = writer
    if request.type in ("memory.write", "memory.update"):
        seen = step.state.read(entries.seen(address))
        if isinstance(seen, int):
            data["read_version"] = seen


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
        version = 0 if outcome_type == "memory.missing" else body["version"]
        step.state.write(entries.seen(request.domain), version)
    match outcome_type:
        case "memory.missing":
            outputs: JsonObject = {"missing": True, "version": 0}
        case "memory.conflicted":
            outputs = {"conflict": True, "current_version": body["current_version"]}
        case _:
            outputs = {name: value for name, value in body.items() if name not in _NOT_PORTS}
    outputs["done"] = True
    try:
        answer_with(step, request, "node.answered", {"outputs": outputs}, outputs)
    except Rejection as rejection:
        fail(step, request, rejection)
