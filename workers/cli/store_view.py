"""A whole store as people see it: its variables, what is outstanding, how the run ended."""

from typing import cast

from schemas.exact_json import JsonObject, JsonValue
from workers.logic.variables import entries
from workers.logic.variables.open_requests import START, Request
from workers.logic.variables.simulation import effects_of
from workers.logic.variables.state import ExecutionKey, ExecutionState
from workers.variables.history import StoreAt


def store_document(key: ExecutionKey, store: StoreAt) -> dict[str, JsonValue]:
    """Return variables, scratchpad, open requests, failures, how it ended, a simulation's effects, a fork's source."""
    state = ExecutionState.load(key, None, store.entries)
    namespaces = {entries.split(entry)[1] for entry in store.entries if entry.startswith("k/")}
    scratchpad: JsonObject = {namespace: state.namespace(namespace) for namespace in sorted(namespaces)}
    document: dict[str, JsonValue] = {
        "variables": state.all_variables(),
        "scratchpad": scratchpad,
        "outstanding": [_outstanding(state, request) for request in state.requests],
    }
    if failures := entries.failures(dict(sorted(store.entries.items()))):
        document["failures"] = cast("list[JsonValue]", failures)
    if entries.FINAL in store.entries:
        ending = cast("JsonObject", state.read(entries.FINAL))
        document |= {name: ending[name] for name in ("output", "error", "reason") if name in ending}
    if entries.META in store.entries:
        meta = cast("JsonObject", state.read(entries.META))
        if meta.get("simulation") not in (None, False):
            document["effects"] = effects_of(state)
        if "forked_from" in meta:
            document["forked_from"] = meta["forked_from"]
    return document


def _outstanding(state: ExecutionState, request: Request) -> JsonObject:
    """Return an open request, and what it waits for: nodes, the start, its turn, or an answer from outside."""
    shown: JsonObject = {"type": request.type}
    if request.node_id:
        shown["node_id"] = request.node_id
    if request.frame:
        shown["iteration"] = request.body["iteration"]
    waiting = state.requests.waiting(request.key)
    if request.sent:
        shown["waits_for"] = ["its activity" if request.type == "activity.scheduled" else "its outcome"]
    elif waiting is not None and waiting.left:
        shown["waits_for"] = [_named(state, key) for key in waiting.left]
    else:
        shown["waits_for"] = ["its turn"]
    return shown


def _named(state: ExecutionState, key: str) -> str:
    if key == START:
        return "execution.started"
    awaited = state.requests.get(key)
    return "an answer" if awaited is None else awaited.node_id or ", ".join(awaited.provides)
