"""Random runs for the model: branches, loops, scratchpad, memory, children, forks, outputs on either topic."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

from schemas.envelope import Event
from tests.support.model_order import Frame
from topics.catalog import Topic

ACTIVITIES = ["a", "b", "c"]
MEMORY_NODES = ["r", "w", "a"]
PATHS = [
    *("a.n", "b.n", "c.n.y", "a", "r.value", "r.version", "w.version", "x", "x.y", "gate.result", "s.operation"),
    *("input.n", "system.execution_id", "item", "item.n", "inner", "_prev.n", "last_output", "last_output.n"),
    *("memory.one.k", "memory.two", "memory_manager.key", "outputs.a.parsed.n", "outputs.b.n", "state.x", "nobody"),
    *("parallel_results.a", "loop.results.0", "last_output_parsed.operation"),
]
AFTERS = ["a", "b.n", "r.value", "r.missing", "w.version", "w.done", "x", "x.y", "gate", "loop", "s", "nobody.port"]
_FRAMES: list[Frame] = [
    (),
    (),
    (),
    (("loop", 0),),
    (("loop", 1),),
    (("loop", 0), ("nest", 0)),
    (("loop", 0), ("nest", 1)),
]
_VALUES: list[Any] = [0, 1, "t", None, True, [1, 2], {"y": 1}, {"n": 2}, [{"n": 5}, 6]]
_TARGETS = ["x", "x.y", "x.z", "a.n", "c", "input_copy"]


@dataclass
class RandomRun:
    """A run as its engine tells it: events in their order, each for one of the two topics."""

    execution_id: str
    random: Random
    events: list[tuple[Topic, Event]] = field(default_factory=list)
    #: Nodes in which a child runs: (node, frame, the child's id).
    children: list[tuple[str, Frame, str]] = field(default_factory=list)

    def say(self, event_type: str, frame: Frame = (), topic: Topic = Topic.EXECUTION_EVENTS, **data: Any) -> None:
        """Add an event; what is None is left out, where leaving it out means something."""
        kept = ("output", "error", "value")
        body = {name: value for name, value in data.items() if value is not None or name in kept}
        if frame:
            body["iteration"] = [{"node_id": node, "index": index} for node, index in frame]
        event = Event(
            id=f"{self.execution_id}/{len(self.events)}",
            source="/engine",
            type=event_type,
            subject=self.execution_id,
            data=body,
        )
        self.events.append((topic, event))

    def start(self, **data: Any) -> None:
        """Start it; the model wants input and subjects."""
        subjects = [{"kind": "kind", "id": self.execution_id}]
        self.say("execution.started", workflow={"name": "flow"}, input={"n": 7}, subjects=subjects, **data)

    def go_on(self, steps: int) -> None:
        """Add random steps."""
        weighted = [
            *(3 * [self.schedule, self.complete, self.complete]),
            *(2 * [self.set_variables, self.use_memory, self.use_scratchpad]),
            *(self.fail, self.evaluate, self.join, self.open_loop, self.close_loop, self.call_child),
        ]
        for _ in range(steps):
            self.random.choice(weighted)()

    # -- parts of events

    def frame(self) -> Frame:
        return self.random.choice(_FRAMES)

    def template(self) -> Any:
        if self.random.random() < 0.4:
            return self.random.choice(_VALUES)
        paths = self.random.sample(PATHS, self.random.choice([1, 1, 2, 3]))
        return f"{{{{{' || '.join(paths)}}}}}"

    def after(self) -> Any:
        drawn = self.random.random()
        if drawn < 0.6:
            return None
        return self.random.choice(AFTERS) if drawn < 0.8 else self.random.sample(AFTERS, 2)

    def mapping(self) -> dict[str, Any]:
        chosen: dict[str, str] = {}
        for target in self.random.sample(_TARGETS, self.random.randint(1, 2)):
            chosen.setdefault(target.partition(".")[0], target)
        return {target: self.template() for target in chosen.values()}

    # -- steps

    def schedule(self) -> None:
        inputs = {name: self.template() for name in self.random.sample("pq", self.random.randint(0, 2))}
        activity = self.random.choice(ACTIVITIES)
        self.say("activity.scheduled", self.frame(), activity_id=activity, inputs=inputs, after=self.after())

    def complete(self) -> None:
        topic = self.random.choice([Topic.EXECUTION_EVENTS, Topic.ACTIVITY_OUTPUTS])
        output = {"n": self.random.choice(_VALUES)}
        mapping = self.mapping() if self.random.random() < 0.3 else None
        activity = self.random.choice(ACTIVITIES)
        self.say("activity.completed", self.frame(), topic, activity_id=activity, output=output, output_mapping=mapping)

    def fail(self) -> None:
        self.say("activity.failed", self.frame(), activity_id=self.random.choice(ACTIVITIES), error="e")

    def set_variables(self) -> None:
        self.say("variables.set", self.frame(), variables=self.mapping())

    def evaluate(self) -> None:
        condition = {"variable": self.random.choice(PATHS), "operator": "exists"}
        self.say("condition.evaluate", self.frame(), node_id="gate", condition=condition, after=self.after())

    def join(self) -> None:
        branches = self.random.sample(ACTIVITIES, self.random.randint(1, 3))
        self.say("parallel.join", self.frame(), node_id="join", branches=branches)

    def open_loop(self) -> None:
        frame, node, variable = self.random.choice([((), "loop", "item"), ((("loop", 0),), "nest", "inner")])
        collection = self.random.choice(["{{r.value}}", "{{a.n}}", "{{x}}", [1, {"n": 2}], [1, {"n": 2}], [3]])
        mapping = self.random.choice([None, {"i": "{{item.n}}"}, {"i": "{{b.n || item}}"}])
        self.say(
            "foreach.open", frame, node_id=node, collection=collection, item_variable=variable, input_mapping=mapping
        )

    def close_loop(self) -> None:
        frame, node = self.random.choice([((), "loop"), ((("loop", 0),), "nest")])
        self.say("foreach.close", frame, node_id=node)

    def use_scratchpad(self) -> None:
        operation = self.random.choice(["write", "append", "append", "read", "clear"])
        stores = operation in ("write", "append")
        key = "k" if stores or self.random.random() < 0.6 else None
        value = self.template() if stores else None
        namespace = self.random.choice(["one", "one", "two"])
        names = {"node_id": "s", "namespace": namespace, "key": key}
        self.say(f"scratchpad.{operation}", self.frame(), value=value, after=self.after(), **names)

    def use_memory(self) -> None:
        operation = self.random.choice(["read", "write", "update"])
        more: dict[str, Any] = {
            "read": {},
            "write": {"value": self.template(), "expected_version": self.random.choice([None, 0, 3, "{{r.version}}"])},
            "update": {"operation": "append", "value": self.template()},
        }[operation]
        subject = self.random.choice(["kind", {"kind": "kind", "id": self.execution_id}])
        key = self.random.choice(["k1", "k1", "k2", "{{x}}", "{{a.n}}"])
        body = {"scope": "shared", "subject": subject, "key": key, "type": "Json", "after": self.after()}
        self.say(f"memory.{operation}", self.frame(), node_id=self.random.choice(MEMORY_NODES), **body, **more)

    def call_child(self) -> None:
        frame, node = self.frame(), self.random.choice(ACTIVITIES)
        child = f"{self.execution_id}-child-{len(self.children)}"
        self.children.append((node, frame, child))
        self.say("activity.scheduled", frame, activity_id=node, inputs={}, child_execution_id=child)

    def end(self) -> None:
        """End it as runs end, or leave it open."""
        match self.random.choice(["completed", "completed", "completed", "failed", "cancelled", "open"]):
            case "completed":
                self.say("execution.completed", output={"last": self.template()})
            case "failed":
                self.say("execution.failed", error="e")
            case "cancelled":
                self.say("execution.cancelled")
            case _:
                pass

    def child(self, node: str, frame: Frame, execution_id: str) -> "RandomRun":
        """Return the run of a child."""
        run = RandomRun(execution_id, self.random)
        parent: dict[str, Any] = {"execution_id": self.execution_id, "node_id": node}
        if frame:
            parent["iteration"] = [{"node_id": outer, "index": index} for outer, index in frame]
        mapping = self.random.choice([None, {"n": "{{a.n}}"}, {"n": self.template()}])
        run.start(parent=parent, output_mapping=mapping)
        run.go_on(self.random.randint(0, 5))
        run.end()
        return run
