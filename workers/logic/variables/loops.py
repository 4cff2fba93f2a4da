"""Parallel and ForEach: declared order and index order, whatever finishes first (camunda#4860, dify#29989)."""

from typing import cast

from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue, dumps
from schemas.names import check_name
from workers.logic.variables import entries
from workers.logic.variables.activities import SCHEDULED
from workers.logic.variables.open_requests import Request
from workers.logic.variables.references import MISSING, Lookup, Missing, Path, Read, Reference, descend
from workers.logic.variables.requests import answer_with, finish, frame_of, lookup_of, take_in
from workers.logic.variables.step import Step
from workers.logic.variables.templates import Template, parse_template

DEFAULT_OUTPUT_VARIABLE = "parallel_results"
_CLOSED_LOOP = "foreach.close"


def join_asked(step: Step, body: JsonObject) -> None:
    """Take in `parallel.join`: it waits for the branches that are outstanding."""
    variable = str(body.get("output_variable") or DEFAULT_OUTPUT_VARIABLE)
    check_name(variable, "the output variable", step.limits)
    branches = tuple(Reference((path,)) for path in _branches(body))
    take_in(step, body, branches, provides=tuple(dict.fromkeys((str(body["node_id"]), variable))))


def _branches(body: JsonObject) -> list[Path]:
    return [Path((str(branch),)) for branch in cast("list[JsonValue]", body["branches"])]


def join(step: Step, request: Request) -> None:
    """Gather the branches' outputs in declared order; a failed or absent branch is null."""
    lookup = lookup_of(step, request)
    results: JsonObject = {}
    for path in _branches(request.body):
        value = lookup(path)
        results[path.segments[0]] = None if value is MISSING else value
    step.check_result(results, "the joined branches")
    variable = request.provides[-1]
    if not request.superseded:
        step.set_variable(request.frame, (variable,), results)
        step.set_last_output({"frame": request.frame, "name": variable})
    data: JsonObject = {"output_variable": variable, "results": results}
    step.answer(request, "parallel.joined", data)
    finish(step, request, {variable: results})


# -- ForEach


def open_asked(step: Step, body: JsonObject) -> None:
    """Take in `foreach.open`: it waits for its collection and for what its input mapping references outside."""
    item_variable = str(body["item_variable"])
    check_name(item_variable, "the item variable", step.limits)
    mapped = (
        tuple(path for path in reference.paths if path.segments[0] != item_variable)
        for reference in _inputs(body).references
    )
    outside = (Reference((path,)) for paths in mapped for path in paths)
    take_in(step, body, (*parse_template(body["collection"]).references, *outside))


def _inputs(body: JsonObject) -> Template:
    return parse_template(body.get("input_mapping") or {})


def open_loop(step: Step, request: Request) -> None:
    """Give each item its own frame, and answer with the items and their inputs."""
    body = request.body
    lookup = lookup_of(step, request)
    collection, reads = parse_template(body["collection"]).render(lookup, step.limits.result_bytes)
    if not isinstance(collection, list):
        shown = dumps(collection)[:60].decode(errors="replace")
        raise Rejection("collection_invalid", f"the collection of {request.node_id!r} is {shown}; reference a list")
    item_variable = str(body["item_variable"])
    inputs = _inputs(body)
    all_reads: dict[Read, None] = dict.fromkeys(reads)
    items: list[JsonValue] = []
    for index, item in enumerate(collection):
        bound, item_reads = inputs.render(_with_item(lookup, item_variable, item), step.limits.result_bytes)
        all_reads.update(dict.fromkeys(item_reads))
        items.append({"index": index, "item": item, "inputs": bound})
    step.check_result(items, f"the items of {request.node_id!r}")
    step.note_reads(tuple(all_reads), request.node_id)
    _clear_iterations(step, request.frame, request.node_id)
    for index, item in enumerate(collection):
        step.set_variable(entries.inner_frame(request.frame, request.node_id, index), (item_variable,), item)
    step.state.write(entries.loop(request.frame, request.node_id), {"count": len(collection)})
    step.answer(request, "foreach.opened", {"items": items})
    finish(step, request, {})


def _with_item(lookup: Lookup, item_variable: str, item: JsonValue) -> Lookup:
    def with_item(path: Path) -> JsonValue | Missing:
        return descend(item, path.segments[1:]) if path.segments[0] == item_variable else lookup(path)

    return with_item


def _clear_iterations(step: Step, frame: str, node_id: str) -> None:
    """Empty a loop that is opened again: nothing of the time before may flow into this one."""
    former = step.state.read(entries.loop(frame, node_id))
    count = cast("int", former["count"]) if isinstance(former, dict) else 0
    for index in range(count):
        inner = entries.inner_frame(frame, node_id, index)
        for nested in step.state.loops_of(inner):
            _clear_iterations(step, inner, nested)
        step.state.clear_frame(inner)


def close_asked(step: Step, body: JsonObject) -> None:
    """Take in `foreach.close`: it waits for everything outstanding in the loop's iterations."""
    node_id = str(body["node_id"])
    within = step.state.requests.in_loop(entries.loop_frames(frame_of(body), node_id))
    take_in(step, body, (Reference((Path((node_id,)),)),), also_awaits=within)


def close_loop(step: Step, request: Request) -> None:
    """Answer with the results by index: the body's output, or an object by activity where it has several.

    What an iteration inherited does not count. A body without activities gives the results of the loops in it.
    """
    opened = step.state.read(entries.loop(request.frame, request.node_id))
    if not isinstance(opened, dict):
        raise Rejection("loop_unknown", f"the loop {request.node_id!r} was never opened; send foreach.open first")
    frames = [
        entries.inner_frame(request.frame, request.node_id, index) for index in range(cast("int", opened["count"]))
    ]
    outputs = [_outputs_of(step, frame, SCHEDULED) for frame in frames]
    if not any(outputs):
        outputs = [_outputs_of(step, frame, _CLOSED_LOOP) for frame in frames]
    several = len({node_id for output in outputs for node_id in output}) > 1
    results: list[JsonValue] = [
        (output or None) if several else next(iter(output.values()), None) for output in outputs
    ]
    step.check_result(results, f"the results of {request.node_id!r}")
    answer_with(step, request, "foreach.closed", {"results": results}, {"results": results, "done": True})


def _outputs_of(step: Step, frame: str, type_: str) -> JsonObject:
    """Return what the nodes of a type gave in one iteration, by node id."""
    found: JsonObject = {}
    for node_id, ended in step.state.nodes_of(frame):
        if ended["type"] == type_ and ended["ended"] == "answered":
            found[node_id] = _output_of(step, frame, node_id, ended)
    return found


def _output_of(step: Step, frame: str, node_id: str, ended: JsonObject) -> JsonValue:
    """Return a node's output; where it was mapped, the variables that the mapping set."""
    if "mapped" in ended:
        names = cast("list[str]", ended["mapped"])
        mapped = {name: step.state.variable(frame, (name,)) for name in names}
        return {name: value for name, value in mapped.items() if value is not MISSING}
    value = cast("JsonValue", step.state.variable(frame, (node_id,)))
    return value["results"] if ended["type"] == _CLOSED_LOOP and isinstance(value, dict) else value
