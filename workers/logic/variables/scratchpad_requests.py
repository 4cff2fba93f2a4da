"""Scratchpad requests (seed 001): one at a time within a namespace, answered with INPUT and OUTPUT."""

from collections.abc import Iterator, Mapping

from schemas.exact_json import JsonObject, JsonValue
from workers.logic.variables import entries, scratchpad
from workers.logic.variables.awaiting import scratchpad_domain
from workers.logic.variables.open_requests import Request
from workers.logic.variables.references import MISSING, Path
from workers.logic.variables.requests import finish, lookup_of, take_in
from workers.logic.variables.scratchpad import DEFAULT_NAMESPACE, Effect, parse_value
from workers.logic.variables.state import ExecutionState
from workers.logic.variables.step import Step
from workers.logic.variables.templates import Template

_STORING = frozenset({"scratchpad.write", "scratchpad.append"})


def asked(step: Step, body: JsonObject) -> None:
    """Take in a scratchpad request; it waits for the namespace's requests before it."""
    references = _template(body).references if step.event.type in _STORING else ()
    take_in(step, body, references, domain=scratchpad_domain(_namespace(body)))


def _template(body: JsonObject) -> Template:
    input_key = body.get("input_key")
    return parse_value(body.get("value"), input_key if isinstance(input_key, str) else None)


def _namespace(body: JsonObject) -> str:
    return str(body.get("namespace") or DEFAULT_NAMESPACE)


def run(step: Step, request: Request) -> None:
    """Carry the operation out on the namespace as it is now."""
    effect = _effect(step, request)
    step.check_result(effect.output, f"the output of {request.node_id!r}")
    namespace = _namespace(request.body)
    received = step.lookup_in(request.frame)(Path(("last_output",)))
    for key, value in effect.written.items():
        step.set_scratchpad(namespace, key, value)
    for key in effect.removed:
        step.state.drop_variable(entries.scratchpad(namespace, key))
    details = dict(effect.details)
    passes_details_on = effect.output is effect.details
    shown: JsonObject = {**details, "done": True}
    if not passes_details_on:
        shown["value"] = effect.output
    if not request.superseded:
        pointer: JsonObject = {"frame": request.frame, "name": request.node_id}
        step.set_variable(request.frame, (request.node_id,), shown)
        step.state.write(entries.MEMORY_MANAGER, pointer)
        step.set_last_output(pointer if passes_details_on else {**pointer, "value": effect.output})
    answer: JsonObject = {**details, "input": None if received is MISSING else received, "output": effect.output}
    step.answer(request, "scratchpad.result", answer)
    finish(step, request, {request.node_id: shown})


def _effect(step: Step, request: Request) -> Effect:
    body, limits = request.body, step.limits
    namespace, key = _namespace(body), str(body.get("key") or "")
    values = Namespace(step.state, namespace)
    max_items, max_chars = _whole(body.get("max_items")), _whole(body.get("max_chars"))
    summary_key = body.get("summary_key")
    match request.type:
        case "scratchpad.write":
            return scratchpad.write(namespace, values, key, _value(step, request), limits)
        case "scratchpad.append":
            return scratchpad.append(namespace, values, key, _value(step, request), limits, max_items=max_items)
        case "scratchpad.read":
            return scratchpad.read(namespace, values, key, limits)
        case "scratchpad.summarize":
            return scratchpad.summarize(
                namespace,
                values,
                key,
                limits,
                max_items=max_items,
                summary_key=summary_key if isinstance(summary_key, str) else None,
                max_chars=max_chars,
            )
        case _:
            return scratchpad.clear(namespace, values, key, limits)


def _value(step: Step, request: Request) -> JsonValue:
    value, reads = _template(request.body).render(lookup_of(step, request), step.limits.result_bytes)
    step.check_result(value, f"the value of {request.node_id!r}")
    step.note_reads(reads, request.node_id)
    return value


def _whole(value: JsonValue) -> int | None:
    return value if isinstance(value, int) else None


class Namespace(Mapping[str, JsonValue]):
    """A scratchpad namespace, of which only the values that are asked for are read."""

    def __init__(self, state: ExecutionState, namespace: str) -> None:
        self._state = state
        self._namespace = namespace

    def __getitem__(self, key: str) -> JsonValue:
        value = self._state.scratchpad(self._namespace, key)
        if value is MISSING:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._state.keys_of(self._namespace))

    def __len__(self) -> int:
        return len(self._state.keys_of(self._namespace))
