"""The part of the model that says who waits for whom."""

import re
from copy import deepcopy
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Self

from schemas.envelope import Event

Frame = tuple[tuple[str, int], ...]
_REFERENCE = re.compile(r"\{\{([^{}]*)\}\}")
_LIVE = ("_prev", "last_output", "last_output_parsed", "memory_manager")
_BAD = ("failed", "skipped", "abandoned")
#: What ends an activity: facts, which wait for the start only.
ENDINGS = ("activity.completed", "activity.failed", "child.completed")


class GONE:
    """Nothing is there."""


def go(value: Any, way: list[str]) -> Any:
    for part in way:
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return GONE
    return value


def references(value: Any) -> list[list[str]]:
    """Return every reference of a template, each a list of paths."""
    if isinstance(value, str):
        found = [[path.strip() for path in inside.split("||")] for inside in _REFERENCE.findall(value)]
    else:
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        found = [reference for part in parts for reference in references(part)]
    return [reference for index, reference in enumerate(found) if reference not in found[:index]]


def render(value: Any, look: Any) -> Any:
    if isinstance(value, str) and (whole := _REFERENCE.fullmatch(value)):
        return resolve([path.strip() for path in whole[1].split("||")], look)
    if isinstance(value, dict):
        return {key: render(part, look) for key, part in value.items()}
    return [render(part, look) for part in value] if isinstance(value, list) else value


def resolve(paths: list[str], look: Any) -> Any:
    return next((found for path in paths if (found := look(path)) not in (GONE, None)), None)


@dataclass
class Waiting:
    """What is known of the run, and who waits for whom. How nodes run is told by those that derive from it."""

    execution_id: str
    scopes: dict[Frame, dict[str, Any]] = field(default_factory=lambda: {(): {}})
    pads: dict[str, dict[str, Any]] = field(default_factory=dict)
    ended: dict[tuple[Frame, str], SimpleNamespace] = field(default_factory=dict)
    loops: dict[tuple[Frame, str], int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    pointers: dict[str, Any] = field(default_factory=dict)
    open: list[SimpleNamespace] = field(default_factory=list)
    ready: list[SimpleNamespace] = field(default_factory=list)
    endings: list[SimpleNamespace] = field(default_factory=list)
    sent: list[tuple[Any, ...]] = field(default_factory=list)
    subjects: dict[str, str] = field(default_factory=dict)
    count: int = 0
    revision: int = 0
    started: bool = False
    status: str = "open"
    final: dict[str, Any] = field(default_factory=dict)
    completion: dict[str, Any] | None = None
    parent: dict[str, Any] | None = None
    output_mapping: dict[str, Any] | None = None
    passed_on: Any = None

    def copy(self) -> Self:
        return deepcopy(self)

    # -- looking

    def outward(self, frame: Frame) -> list[Frame]:
        return [frame[:depth] for depth in range(len(frame), -1, -1)]

    def variable(self, frame: Frame, name: str) -> Any:
        for scope in self.outward(frame):
            if name in self.scopes.get(scope, {}):
                return self.scopes[scope][name]
        return GONE

    def look(self, frame: Frame, path: str) -> Any:
        root, *way = path.split(".")
        if root in _LIVE:
            return deepcopy(go(self.pointed(root), way))
        if root == "memory":
            return deepcopy(go(self.pads.get(way[0]) or GONE, way[1:]))
        if root in ("outputs", "state"):
            root, *way = way
            way = way[1:] if path.startswith("outputs") and way[:1] == ["parsed"] else way
        value = self.variable(frame, root)
        return deepcopy(go(value, way)) if value is not GONE else GONE

    def pointed(self, root: str) -> Any:
        name = {"_prev": "prev", "memory_manager": "manager"}.get(root, "last")
        pointer = self.pointers.get(name)
        if pointer is None:
            return GONE
        if "value" in pointer and not (root == "last_output_parsed" and "node" in pointer):
            return pointer["value"]
        frame, node = pointer["node"]
        return self.scopes.get(frame, {}).get(node, GONE)

    def giver(self, frame: Frame, name: str) -> SimpleNamespace | None:
        """Return the unanswered request that a name means."""
        for scope in self.outward(frame):
            giver = self.giver_in(scope, name)
            if giver is not None or name in self.scopes.get(scope, {}):
                return giver
        return None

    def giver_in(self, scope: Frame, name: str) -> SimpleNamespace | None:
        for request in sorted(self.open, key=lambda request: -request.number):
            if request.frame == scope and name in request.gives and not request.dead:
                return request
        opening = [
            request
            for request in self.open
            if scope
            and request.type == "foreach.open"
            and (request.frame, request.node) == (scope[:-1], scope[-1][0])
            and request.body["item_variable"] == name
        ]
        return opening[-1] if opening else None

    def meant(self, frame: Frame, name: str) -> tuple[SimpleNamespace | None, SimpleNamespace | None]:
        """Return what `after` means: the innermost request of that name, unanswered or ended."""
        for scope in self.outward(frame):
            giver = self.giver_in(scope, name)
            end = self.ended.get((scope, name)) if giver is None else None
            if giver is not None or end is not None or name in self.scopes.get(scope, {}):
                return giver, end
        return None, None

    def needed_for(self, frame: Frame, path: str, gates: list[SimpleNamespace]) -> list[Any]:
        root, *way = path.split(".")
        if root in _LIVE:
            return [max(request.number for request in gates)] if gates else []
        if root == "memory":
            writers = [request.number for request in self.open if request.domain == ("pad", way[0])]
            if writers:
                return writers
        else:
            giver = self.giver(frame, way[0] if root in ("outputs", "state") else root)
            if giver is not None:
                return [giver.number]
        if root in ("input", "system", "event") and not self.started:
            return ["start"]
        return []

    # -- requests

    def ask(self, event: Event, frame: Frame, node: str, refs: list[list[str]], **more: Any) -> SimpleNamespace:
        self.count += 1
        body, after = event.data, event.data.get("after") or []
        request = SimpleNamespace(
            number=self.count,
            turn=self.count,
            type=event.type,
            node=node,
            frame=frame,
            body=deepcopy(body),
            id=event.id,
        )
        request.__dict__.update(
            gives=[node], domain=None, dead=False, sent=False, waited=False, needs={}, gates={}, bound={}
        )
        request.__dict__.update(more)
        gates, closed = self.gates_of(request, [after] if isinstance(after, str) else after)
        for reference in refs:
            for path in reference:
                needed = self.needed_for(frame, path, [] if closed else gates)
                for key in needed:
                    request.needs.setdefault(key, []).append(path)
                known = GONE if needed else self.look(frame, path)
                if known is not GONE:
                    request.bound[path] = known
                if known not in (GONE, None):
                    break
        request.refs, request.fixed = refs, set(request.gates)
        for key in [*more.get("also", []), *(["start"] if more.get("needs_start") and not self.started else [])]:
            request.needs.setdefault(key, [])
            request.fixed.add(key)
        queue = [other for other in self.open if request.domain is not None and other.domain == request.domain]
        request.waited = bool(request.needs or queue)
        self.open.append(request)
        if closed:
            self.skip(request, "port_absent")
        elif not request.waited:
            self.ready.append(request)
        elif self.status in ("completed", "failed", "cancelled") and request.type not in ENDINGS:
            self.skip(request, "execution_ended")
        return request

    def gates_of(self, request: SimpleNamespace, after: list[str]) -> tuple[list[SimpleNamespace], bool]:
        """Note which requests `after` waits for; tell whether it can never hold."""
        closed, gates = False, []
        for text in after:
            name, _, port = text.partition(".")
            giver, end = self.meant(request.frame, name)
            if giver is not None:
                gates.append(giver)
                request.gates.setdefault(giver.number, []).append(text)
                request.needs.setdefault(giver.number, [])
                continue
            output = self.variable(request.frame, name) if port else GONE
            if end is not None or output is not GONE:
                how, ports = ("answered", None) if end is None else (end.how, end.ports)
                closed = closed or self.closes(text, output, how, ports)
        return gates, closed

    def closes(self, text: str, output: Any, how: str, ports: set[str] | None) -> bool:
        port = text.partition(".")[2]
        if ports is not None and how not in _BAD and port not in ("", "done"):
            return port.split(".")[0] not in ports
        return how in _BAD or (port not in ("", "done") and go(output, port.split(".")) in (GONE, None))

    def finish(self, request: SimpleNamespace, outputs: dict[str, Any], how: str = "answered") -> None:
        request.outputs, request.how = outputs, how
        request.first = self.first(request)
        self.open.remove(request)
        if request.node and not request.dead and request.type not in ENDINGS:
            self.note_end(request.frame, request.node, request.type, how, request.number)
        self.endings.append(request)

    def note_end(self, frame: Frame, node: str, kind: str, how: str, number: int) -> None:
        self.ended[frame, node] = SimpleNamespace(how=how, type=kind, mapped=None, ports=None)
        if how in ("failed", "skipped"):
            self.scopes.get(frame, {}).pop(node, None)
        for older in self.open:
            if (older.frame, older.node) == (frame, node) and older.number < number:
                older.dead = True

    def first(self, request: SimpleNamespace) -> bool:
        queue = [other for other in self.open if other.domain is not None and other.domain == request.domain]
        return bool(queue) and min(queue, key=lambda other: other.turn) is request

    def say(self, request: SimpleNamespace, kind: str, payload: Any) -> None:
        self.sent.append((kind, request.node, request.frame, request.id, payload))

    def skip(self, request: SimpleNamespace, code: str, how: str = "skipped") -> None:
        if request.type != "variables.set":
            self.say(request, "node.skipped", code)
        self.finish(request, {}, how)

    def fail(self, request: SimpleNamespace, code: str) -> None:
        self.say(request, "node.failed", code)
        self.finish(request, {}, "failed")

    def answer(self, request: SimpleNamespace, kind: str, payload: Any, outputs: dict[str, Any]) -> None:
        if not request.dead:
            self.scopes.setdefault(request.frame, {})[request.node] = deepcopy(outputs)
            self.pointers["last"] = {"node": (request.frame, request.node)}
        self.say(request, kind, payload)
        self.finish(request, {request.node: outputs})

    def settle(self) -> None:
        while self.endings or self.ready:
            if not self.endings:
                request = self.ready.pop(0)
                if request in self.open:
                    self.run(request)
                continue
            done = self.endings.pop(0)
            self.release(done.number, done)
            if done.domain is not None and done.first:
                queue = [other for other in self.open if other.domain == done.domain]
                if queue:
                    self.free(min(queue, key=lambda other: other.turn))

    def release(self, key: Any, done: SimpleNamespace | None) -> None:
        for waiting in [request for request in self.open if key in request.needs]:
            paths = waiting.needs.pop(key)
            gates = waiting.gates.pop(key, []) if done is not None else []
            if any(self.shuts(text, done) for text in gates):
                self.skip(waiting, "port_absent")
                continue
            for path in paths:
                if any(path in others for others in waiting.needs.values()):
                    continue
                value = self.value_from(waiting, path, done)
                if value is not GONE:
                    waiting.bound[path] = deepcopy(value)
            self.forget_fallbacks(waiting)
            self.free(waiting)

    def shuts(self, text: str, done: SimpleNamespace) -> bool:
        name = text.partition(".")[0]
        end = self.ended.get((done.frame, name))
        return self.closes(
            text,
            self.given(done, name),
            done.how,
            end.ports if end is not None and done.type in (*ENDINGS, "activity.scheduled") else None,
        )

    def forget_fallbacks(self, waiting: SimpleNamespace) -> None:
        """Stop waiting for what only stands behind a value that is known and not null."""
        needed: set[str] = set()
        for reference in waiting.refs:
            for path in reference:
                needed.add(path)
                if waiting.bound.get(path) is not None:
                    break
        for key in [key for key, paths in waiting.needs.items() if key not in waiting.fixed and not needed & {*paths}]:
            del waiting.needs[key]

    def given(self, done: Any, name: str) -> Any:
        return (
            self.scopes.get(done.frame, {}).get(name, GONE)
            if done.type in (*ENDINGS, "variables.set")
            else done.outputs.get(name, GONE)
        )

    def value_from(self, waiting: SimpleNamespace, path: str, done: SimpleNamespace | None) -> Any:
        root, *way = path.split(".")
        if done is None or root in _LIVE or root == "memory" or done.type == "foreach.open":
            return self.look(waiting.frame, path)
        if root in ("outputs", "state"):
            root, *way = way
            way = way[1:] if path.startswith("outputs") and way[:1] == ["parsed"] else way
        value = self.given(done, root)
        return GONE if value is GONE else go(value, way)

    def free(self, request: SimpleNamespace) -> None:
        if (
            not request.sent
            and not request.needs
            and (request.domain is None or self.first(request))
            and request not in self.ready
        ):
            self.ready.append(request)

    def lookup(self, request: SimpleNamespace) -> Any:
        return (
            (lambda path: request.bound.get(path, GONE))
            if request.waited
            else (lambda path: self.look(request.frame, path))
        )

    def run(self, request: SimpleNamespace) -> None:
        kind, _, verb = request.type.partition(".")
        name = f"run_{kind}" if kind in ("scratchpad", "memory") else f"run_{kind}_{verb}"
        getattr(self, name)(request, request.body, self.lookup(request))
