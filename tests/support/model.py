"""A simple model of one execution: plain dicts, written from the contract alone, with which the fold is compared.

It knows nothing of entries, bytes or limits, copies everything and searches everything. What it decides:

- A request binds on arrival what is known, and waits for each unanswered request that its references or `after` name.
- A node or variable means the latest unanswered request that gives it, in the innermost frame that knows it.
- Requests at one address or in one namespace run in turn. What is free goes ahead, the oldest first.
- Before the start, an output whose mapping needs it waits for it, and what ends an activity then waits behind.
- An answer goes to those who wait for it; the store takes it unless a later request of that node was answered before.
"""

from copy import deepcopy
from types import SimpleNamespace
from typing import Any

from schemas.envelope import Event
from tests.support.model_life import Life
from tests.support.model_order import ENDINGS, GONE, Frame, go, references, render

__all__ = ["Frame", "Model"]
_BY_START = ("input", "system", "event")
_ENDINGS = ("endings",)


def until_known(reference: list[str], look: Any) -> list[str]:
    """Return the paths of a reference that its value depends on."""
    known = next((place for place, path in enumerate(reference) if look(path) not in (GONE, None)), len(reference))
    return reference[: known + 1]


class Model(Life):
    """What the nodes do when it is their turn."""

    # -- activities and variables

    def activity_scheduled(self, body: dict[str, Any], frame: Frame, event: Event) -> None:
        self.ask(event, frame, body["activity_id"], references(body["inputs"]))

    def run_activity_scheduled(self, request: SimpleNamespace, body: dict[str, Any], look: Any) -> None:
        missing = [
            reference[0] for reference in references(body["inputs"]) if all(look(path) is GONE for path in reference)
        ]
        self.say(request, "activity.ready", (render(body["inputs"], look), missing))
        request.sent = True

    def activity_completed(self, body: dict[str, Any], frame: Frame, event: Event) -> None:
        look = self.own_or_store(body, frame)
        mapping = body.get("output_mapping")
        needed = [path for reference in references(mapping or {}) for path in until_known(reference, look)]
        if not self.held(body, frame, event, waits=any(path.split(".")[0] in _BY_START for path in needed)):
            self.complete(body, frame, event.id, None)

    def own_or_store(self, body: dict[str, Any], frame: Frame) -> Any:
        node, output = body["activity_id"], body["output"]

        def look(path: str) -> Any:
            return go(output, path.split(".")[1:]) if path.split(".", maxsplit=1)[0] == node else self.look(frame, path)

        return look

    def held(self, body: dict[str, Any], frame: Frame, event: Event, *, waits: bool) -> bool:
        """Let what ends an activity wait for the start, if it needs it or another one waits already."""
        if self.started or not (waits or any(request.domain == _ENDINGS for request in self.open)):
            return False
        targets = [target.split(".")[0] for target in body.get("output_mapping") or {}]
        gives = list(dict.fromkeys([body["activity_id"], *targets]))
        self.ask(event, frame, body["activity_id"], [], gives=gives, domain=_ENDINGS, needs_start=True)
        return True

    def run_activity_completed(self, request: SimpleNamespace, body: dict[str, Any], look: Any) -> None:
        kept = self.complete(body, request.frame, request.id, request.number)
        self.finish(request, {}, "answered" if kept else "failed")

    def run_activity_failed(self, request: SimpleNamespace, body: dict[str, Any], look: Any) -> None:
        self.fail_activity(body["activity_id"], request.frame, request.number)
        self.finish(request, {}, "failed")

    def complete(self, body: dict[str, Any], frame: Frame, said_by: str, before: int | None) -> bool:
        node, output, mapping = body["activity_id"], body["output"], body.get("output_mapping")
        writes = {node: output} if mapping is None else render(mapping, self.own_or_store(body, frame))
        if not self.fits(frame, writes):
            self.sent.append(("node.failed", node, frame, said_by, "target_not_an_object"))
            self.fail_activity(node, frame, before)
            return False
        self.set(frame, writes)
        self.pointers["prev"] = {"value": output} if mapping is not None else {"node": (frame, node)}
        self.pointers["last"] = {"value": output} if mapping is not None else {"node": (frame, node)}
        self.end_activity(frame, node, {} if mapping is not None else {node: output}, "answered", before)
        if mapping is not None:
            self.ended[frame, node] = SimpleNamespace(
                how="answered",
                type="activity.scheduled",
                mapped=sorted({target.split(".")[0] for target in mapping}) if frame else None,
                ports={name for name, value in output.items() if value is not None},
            )
        return True

    def activity_failed(self, body: dict[str, Any], frame: Frame, event: Event) -> None:
        if not self.held(body, frame, event, waits=False):
            self.fail_activity(body["activity_id"], frame, None)

    def child_completed(self, body: dict[str, Any], frame: Frame, event: Event) -> None:
        if not self.held({"activity_id": body["node_id"]}, frame, event, waits=False):
            self.end_child(body, frame, event.id, None)

    def run_child_completed(self, request: SimpleNamespace, body: dict[str, Any], look: Any) -> None:
        kept = self.end_child(body, request.frame, request.id, request.number)
        self.finish(request, {}, "answered" if kept else "failed")

    def end_child(self, body: dict[str, Any], frame: Frame, said_by: str, before: int | None) -> bool:
        if body["status"] == "completed":
            return self.complete({"activity_id": body["node_id"], "output": body["outputs"]}, frame, said_by, before)
        self.fail_activity(body["node_id"], frame, before)
        return False

    def fail_activity(self, node: str, frame: Frame, before: int | None) -> None:
        self.scopes.get(frame, {}).pop(node, None)
        self.end_activity(frame, node, {}, "failed", before)

    def end_activity(self, frame: Frame, node: str, outputs: dict[str, Any], how: str, before: int | None) -> None:
        mine = [r for r in self.open if (r.frame, r.node, r.type) == (frame, node, "activity.scheduled")]
        mine = [request for request in mine if before is None or request.number < before]
        for request in [request for request in mine if request.sent] or mine:
            if not request.sent:
                self.say(request, "node.skipped", "already_ended")
            self.finish(request, outputs, how)
        if frame or how != "answered" or (frame, node) in self.ended:
            self.ended[frame, node] = SimpleNamespace(how=how, type="activity.scheduled", mapped=None, ports=None)

    def fits(self, frame: Frame, writes: dict[str, Any]) -> bool:
        for target in writes:
            parts = target.split(".")
            for depth in range(1, len(parts)):
                there = go(self.scopes.get(frame, {}), parts[:depth])
                if there in (GONE, None):
                    break
                if not isinstance(there, dict):
                    return False
        return True

    def set(self, frame: Frame, writes: dict[str, Any]) -> None:
        for target, value in writes.items():
            *way, last = target.split(".")
            place = self.scopes.setdefault(frame, {})
            for part in way:
                if not isinstance(place.get(part), dict):
                    place[part] = {}
                place = place[part]
            place[last] = deepcopy(value)

    def variables_set(self, body: dict[str, Any], frame: Frame, event: Event) -> None:
        names = [target.split(".")[0] for target in body["variables"]]
        also = [
            max(givers)
            for name in names
            if (givers := [r.number for r in self.open if r.frame == frame and name in r.gives])
            and next(r for r in self.open if r.number == max(givers)).type in (*ENDINGS, "variables.set")
        ]
        self.ask(event, frame, "", references(body["variables"]), gives=names, also=also)

    def run_variables_set(self, request: SimpleNamespace, body: dict[str, Any], look: Any) -> None:
        writes = render(body["variables"], look)
        if not self.fits(request.frame, writes):
            self.fail(request, "target_not_an_object")
            return
        self.set(request.frame, writes)
        self.finish(request, {})

    # -- conditions, branches, loops

    def condition_evaluate(self, body: dict[str, Any], frame: Frame, event: Event) -> None:
        self.ask(event, frame, body["node_id"], [[body["condition"]["variable"]]])

    def run_condition_evaluate(self, request: SimpleNamespace, body: dict[str, Any], look: Any) -> None:
        result = look(body["condition"]["variable"]) not in (GONE, None)
        self.answer(request, "condition.evaluated", result, {"result": result, "done": True})

    def parallel_join(self, body: dict[str, Any], frame: Frame, event: Event) -> None:
        refs = [[branch] for branch in body["branches"]]
        self.ask(event, frame, body["node_id"], refs, gives=[body["node_id"], "parallel_results"])

    def run_parallel_join(self, request: SimpleNamespace, body: dict[str, Any], look: Any) -> None:
        results = {branch: None if (found := look(branch)) is GONE else found for branch in body["branches"]}
        if not request.dead:
            self.scopes.setdefault(request.frame, {})["parallel_results"] = deepcopy(results)
            self.pointers["last"] = {"node": (request.frame, "parallel_results")}
        self.say(request, "parallel.joined", list(results.items()))
        self.finish(request, {"parallel_results": results})

    def foreach_open(self, body: dict[str, Any], frame: Frame, event: Event) -> None:
        inside = references(body.get("input_mapping") or {})
        outside = [[path] for reference in inside for path in reference if path.split(".")[0] != body["item_variable"]]
        self.ask(event, frame, body["node_id"], references(body["collection"]) + outside)

    def run_foreach_open(self, request: SimpleNamespace, body: dict[str, Any], look: Any) -> None:
        collection, variable = render(body["collection"], look), body["item_variable"]
        if not isinstance(collection, list):
            self.fail(request, "collection_invalid")
            return
        items = [
            render(
                body.get("input_mapping") or {},
                lambda path, item=item: go(item, path.split(".")[1:]) if path.split(".")[0] == variable else look(path),
            )
            for item in collection
        ]
        self.clear(request.frame, request.node)
        for index, item in enumerate(collection):
            self.scopes.setdefault((*request.frame, (request.node, index)), {})[variable] = deepcopy(item)
        self.loops[request.frame, request.node] = len(collection)
        self.say(request, "foreach.opened", (collection, items))
        self.finish(request, {})

    def clear(self, frame: Frame, node: str) -> None:
        for index in range(self.loops.get((frame, node), 0)):
            inner = (*frame, (node, index))
            for nested in [name for scope, name in self.loops if scope == inner]:
                self.clear(inner, nested)
                del self.loops[inner, nested]
            self.scopes.pop(inner, None)
            self.ended = {key: value for key, value in self.ended.items() if key[0] != inner}

    def foreach_close(self, body: dict[str, Any], frame: Frame, event: Event) -> None:
        node, depth = body["node_id"], len(frame)
        inside = [
            r.number for r in self.open if r.frame[:depth] == frame and r.frame[depth:] and r.frame[depth][0] == node
        ]
        self.ask(event, frame, node, [[node]], also=inside)

    def run_foreach_close(self, request: SimpleNamespace, body: dict[str, Any], look: Any) -> None:
        if (request.frame, request.node) not in self.loops:
            self.fail(request, "loop_unknown")
            return
        frames = [(*request.frame, (request.node, i)) for i in range(self.loops[request.frame, request.node])]
        bodies = [self.outputs_of(frame, "activity.scheduled") for frame in frames]
        bodies = bodies if any(bodies) else [self.outputs_of(frame, "foreach.close") for frame in frames]
        several = len({node for body in bodies for node in body}) > 1
        results = [(body or None) if several else next(iter(body.values()), None) for body in bodies]
        self.answer(request, "foreach.closed", results, {"results": results, "done": True})

    def outputs_of(self, frame: Frame, kind: str) -> dict[str, Any]:
        found = {}
        for scope, node in sorted(self.ended):
            end = self.ended[scope, node]
            if scope != frame or end.type != kind or end.how != "answered":
                continue
            value = self.scopes.get(frame, {}).get(node)
            if end.mapped is not None:
                value = {name: self.scopes[frame][name] for name in end.mapped if name in self.scopes.get(frame, {})}
            elif kind == "foreach.close" and isinstance(value, dict):
                value = value["results"]
            found[node] = deepcopy(value)
        return found

    # -- scratchpad and memory

    def scratchpad(self, body: dict[str, Any], frame: Frame, event: Event) -> None:
        stores = event.type in ("scratchpad.write", "scratchpad.append")
        value = "{{last_output}}" if body.get("value") is None else body["value"]
        self.ask(event, frame, body["node_id"], references(value) if stores else [], domain=("pad", body["namespace"]))

    def run_scratchpad(self, request: SimpleNamespace, body: dict[str, Any], look: Any) -> None:
        received, key, pad = self.pointed("last_output"), body.get("key"), self.pads.setdefault(body["namespace"], {})
        value = render("{{last_output}}" if body.get("value") is None else body["value"], look)
        details: dict[str, Any] = {
            "operation": request.type.partition(".")[2],
            "namespace": body["namespace"],
            "key": key or None,
        }
        output: Any = details
        match request.type:
            case "scratchpad.write":
                details["replaced"] = key in pad
                pad[key] = value
            case "scratchpad.append":
                before = pad.get(key)
                items = [*(before if isinstance(before, list) else [] if before is None else [before]), value]
                pad[key] = items[-20:]
                details |= {
                    "count": len(pad[key]),
                    "dropped": len(items) - len(pad[key]),
                    "max_items": 20,
                    "value": pad[key],
                }
            case "scratchpad.read" if key:
                details["found"], output = key in pad, pad.get(key)
            case "scratchpad.read":
                details |= {"found": bool(pad), "count": len(pad)}
                output = dict(pad)
            case _:
                removed = [name for name in pad if not key or name == key]
                details["removed"] = len(removed)
                for name in removed:
                    del pad[name]
        shown = {**deepcopy(details), "done": True, **({} if output is details else {"value": deepcopy(output)})}
        if not request.dead:
            self.scopes.setdefault(request.frame, {})[request.node] = shown
            pointer = {"node": (request.frame, request.node)}
            self.pointers["manager"] = pointer
            self.pointers["last"] = pointer if output is details else {**pointer, "value": deepcopy(output)}
        self.say(request, "scratchpad.result", (None if received is GONE else deepcopy(received), deepcopy(output)))
        self.finish(request, {request.node: shown})

    def memory(self, body: dict[str, Any], frame: Frame, event: Event) -> None:
        refs = references([body["key"], body.get("value"), body.get("expected_version")])
        needs_start = isinstance(body["subject"], str)
        known = not references(body["key"]) and not (needs_start and not self.started)
        self.ask(
            event, frame, body["node_id"], refs, domain=self.item(body) if known else None, needs_start=needs_start
        )

    def item(self, body: dict[str, Any]) -> tuple[str, str, str]:
        subject = body["subject"]
        known = subject if isinstance(subject, dict) else {"kind": subject, "id": self.subjects[subject]}
        return ("item", f"{known['kind']}/{known['id']}", str(body["key"]))

    def run_memory(self, request: SimpleNamespace, body: dict[str, Any], look: Any) -> None:
        key, value = render(body["key"], look), render(body.get("value"), look)
        expected = render(body.get("expected_version"), look)
        key = str(key).lower() if isinstance(key, bool) else key
        if request.domain is None:
            if not isinstance(key, (str, int)):
                self.fail(request, "address_invalid")
                return
            self.count += 1
            queue = [other for other in self.open if other.domain == self.item({**body, "key": key})]
            request.domain, request.turn = self.item({**body, "key": key}), self.count
            if queue:
                paths = [
                    path
                    for reference in references([body["key"], body.get("value"), body.get("expected_version")])
                    for path in reference
                ]
                request.bound = {path: deepcopy(found) for path in paths if (found := look(path)) is not GONE}
                request.waited = True
                if self.status in ("completed", "failed", "cancelled"):
                    self.skip(request, "execution_ended")
                return
        if "expected_version" in body and expected is None:
            self.skip(request, "expected_version_absent")
            return
        seen = self.seen.get(str(request.domain)) if request.type in ("memory.write", "memory.update") else None
        self.say(request, request.type, (str(key), value, expected, seen))
        request.sent = True

    def outcome(self, kind: str, body: dict[str, Any]) -> None:
        request = next(request for request in self.open if request.id == body["asked_by"])
        if kind == "memory.rejected":
            self.fail(request, body["code"])
            return
        if kind != "memory.conflicted":
            self.seen[str(request.domain)] = body["version"]
        about = ("command_id", "command_source", "address", "asked_by")
        outputs = {name: value for name, value in body.items() if name not in about}
        match kind:
            case "memory.missing":
                outputs = {"missing": True, "version": 0}
            case "memory.conflicted":
                outputs = {"conflict": True, "current_version": body["current_version"]}
        self.answer(request, "node.answered", {**outputs, "done": True}, {**outputs, "done": True})
