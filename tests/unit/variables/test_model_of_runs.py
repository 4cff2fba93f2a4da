"""Random runs, event by event: the fold says and stores what the simple model does, reloaded at every event or never."""

from collections import defaultdict
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from schemas.envelope import Event
from schemas.identity import key_of
from schemas.limits import DEFAULT_LIMITS
from tests.support.model import Frame, Model
from tests.support.model_order import ENDINGS
from tests.support.model_view import said, scratchpad, variables
from tests.support.random_runs import ACTIVITIES, AFTERS, MEMORY_NODES, PATHS
from tests.support.runs import NOW, Run
from workers.logic.variables import entries, fold
from workers.logic.variables.state import ExecutionKey, ExecutionState
from workers.logic.variables.step import Context

SAFE_DEPTH = 30
paths = st.sampled_from(PATHS)
refs = st.one_of(paths, st.lists(paths, min_size=2, max_size=3).map(" || ".join)).map("{{{{{}}}}}".format)
values = st.sampled_from([0, 1, "t", None, True, [1, 2], {"y": 1}, {"n": 2}, [{"n": 5}, 6]])
templates = refs | values
outputs = st.fixed_dictionaries({"n": values})
targets = st.sampled_from(["x", "x.y", "x.z", "a.n", "c", "input_copy"])


@st.composite
def mappings(draw: st.DrawFn, min_size: int = 0) -> dict[str, Any]:
    chosen = draw(st.lists(targets, min_size=min_size, max_size=2, unique_by=lambda target: target[:2].rstrip(".")))
    return {target: draw(refs | values) for target in chosen}


afters = st.one_of(st.none(), st.none(), st.sampled_from(AFTERS), st.lists(st.sampled_from(AFTERS), max_size=2))
frames: st.SearchStrategy[Frame] = st.sampled_from(
    [(), (), (), (("loop", 0),), (("loop", 1),), (("loop", 0), ("nest", 0)), (("loop", 0), ("nest", 1))]
)
namespaces = st.sampled_from(["one", "one", "two"])
keys = st.sampled_from(["k1", "k1", "k2", "{{x}}", "{{a.n}}"])


def depth(value: Any) -> int:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(depth, parts), default=0)


class Runs(RuleBasedStateMachine):
    """One run in three copies: the model, a state that lives on, and one that is loaded anew for each event."""

    def __init__(self) -> None:
        super().__init__()
        self.run = Run("run")
        self.kept: dict[str, bytes] = {}
        self.state = ExecutionState.load(ExecutionKey("default", "run"), None, self.kept)
        self.model = Model("run")
        self.asked: dict[str, tuple[str, Frame]] = {}
        self.commands: list[Event] = []
        self.answered: dict[str, list[str]] = defaultdict(list)
        self.requests: set[str] = set()
        self.uncommitted = 0

    # -- saying it three times

    def say(self, event_type: str, frame: Frame = (), **data: Any) -> None:
        body = {
            name: value for name, value in data.items() if value is not None or name in ("output", "error", "value")
        }
        if frame:
            body["iteration"] = [{"node_id": node, "index": index} for node, index in frame]
        event = self.run.event(event_type, body)
        self.asked[str(key_of(event))] = (event.id, frame)
        self.compare(event, event)
        if "node_id" in body or event_type == "activity.scheduled":
            self.requests.add(event.id)

    def compare(self, event: Event, for_model: Event) -> None:
        reloaded = self.run.apply(event)
        lived = fold.apply(self.state, event, context=Context(NOW, DEFAULT_LIMITS))
        assert lived == reloaded
        assert lived is not None
        self.commit(lived.changes)
        expected = self.model.apply(for_model)
        assert [self.said(outgoing.event) for outgoing in lived.outgoing] == expected
        assert variables(self.run.state, self.run.entries) == {
            frame: names for frame, names in self.model.scopes.items() if names
        }
        assert scratchpad(self.run.state, self.run.entries) == {
            name: values for name, values in self.model.pads.items() if values
        }
        assert self.state.status == self.model.status
        assert lived.revision == self.model.revision

    def commit(self, changes: dict[str, bytes | None]) -> None:
        """Commit every third event only: between, the state lives on what it has kept."""
        self.uncommitted += 1
        for entry, data in changes.items():
            if data is None:
                self.kept.pop(entry, None)
            else:
                self.kept[entry] = data
        if self.uncommitted % 3 == 0:
            self.state.committed()

    def said(self, event: Event) -> tuple[Any, ...]:
        if event.type.startswith("memory."):
            self.commands.append(event)
        elif "request_id" in event.data:
            self.answered[str(event.data["request_id"])].append(event.type)
        return said(event, self.asked)

    # -- what may happen

    @initialize(early=st.booleans())
    def begin(self, early: bool) -> None:
        if not early:
            self.start()

    @precondition(lambda self: not self.model.started)
    @rule()
    def start(self) -> None:
        self.say("execution.started", workflow={"name": "flow"}, input={"n": 7}, subjects=[{"kind": "kind", "id": "1"}])

    @rule(
        activity=st.sampled_from(ACTIVITIES),
        frame=frames,
        inputs=st.dictionaries(st.sampled_from("pq"), templates, max_size=2),
        after=afters,
    )
    def schedule(self, activity: str, frame: Frame, inputs: Any, after: Any) -> None:
        self.say("activity.scheduled", frame, activity_id=activity, inputs=inputs, after=after)

    @rule(activity=st.sampled_from(ACTIVITIES), frame=frames, output=outputs, mapping=st.none() | mappings())
    def complete_activity(self, activity: str, frame: Frame, output: Any, mapping: Any) -> None:
        self.say("activity.completed", frame, activity_id=activity, output=output, output_mapping=mapping)

    @precondition(lambda self: any(request.type == "activity.scheduled" for request in self.model.open))
    @rule(data=st.data(), output=outputs, fails=st.booleans())
    def end_an_outstanding_activity(self, data: st.DataObject, output: Any, fails: bool) -> None:
        open_ones = [request for request in self.model.open if request.type == "activity.scheduled"]
        request = data.draw(st.sampled_from(open_ones))
        if fails:
            self.say("activity.failed", request.frame, activity_id=request.node, error="e")
        else:
            self.say("activity.completed", request.frame, activity_id=request.node, output=output)

    @rule(activity=st.sampled_from(ACTIVITIES), frame=frames)
    def fail_activity(self, activity: str, frame: Frame) -> None:
        self.say("activity.failed", frame, activity_id=activity, error="e")

    @rule(variables=mappings(1), frame=frames)
    def set_variables(self, variables: Any, frame: Frame) -> None:
        body = {"variables": variables}
        if frame:
            body["iteration"] = [{"node_id": node, "index": index} for node, index in frame]
        event = self.run.event("variables.set", body)
        self.asked[str(key_of(event))] = (event.id, frame)
        trial = self.model.copy()
        trial.apply(event)
        if any(sent[0] == "node.failed" and sent[3] == event.id for sent in trial.sent):
            # Nobody could be answered: it is refused whole, where it can be told at once.
            assert self.run.refuse("variables.set", **body) == "target_not_an_object"
            return
        self.compare(event, event)

    @rule(path=paths, frame=frames, after=afters)
    def evaluate(self, path: str, frame: Frame, after: Any) -> None:
        condition = {"variable": path, "operator": "exists"}
        self.say("condition.evaluate", frame, node_id="gate", condition=condition, after=after)

    @rule(branches=st.lists(st.sampled_from(ACTIVITIES), min_size=1, unique=True), frame=frames)
    def join(self, branches: list[str], frame: Frame) -> None:
        self.say("parallel.join", frame, node_id="join", branches=branches)

    @rule(
        place=st.sampled_from([((), "loop", "item"), ((("loop", 0),), "nest", "inner")]),
        collection=st.sampled_from(["{{r.value}}", "{{a.n}}", "{{x}}", [1, {"n": 2}], [3], []]),
        mapping=st.none()
        | st.dictionaries(st.just("i"), st.sampled_from(["{{item.n}}", "{{inner}}", "{{b.n || item}}"])),
    )
    def open_loop(self, place: Any, collection: Any, mapping: Any) -> None:
        frame, node, variable = place
        self.say(
            "foreach.open", frame, node_id=node, collection=collection, item_variable=variable, input_mapping=mapping
        )

    @rule(place=st.sampled_from([((), "loop"), ((("loop", 0),), "nest")]))
    def close_loop(self, place: Any) -> None:
        self.say("foreach.close", place[0], node_id=place[1])

    @rule(
        operation=st.sampled_from(["write", "append", "read", "clear"]),
        namespace=namespaces,
        key=st.sampled_from(["k", "k", ""]),
        value=st.none() | templates,
        frame=frames,
        after=afters,
    )
    def use_scratchpad(self, operation: str, namespace: str, key: str, value: Any, frame: Frame, after: Any) -> None:
        stores = operation in ("write", "append")
        self.say(
            f"scratchpad.{operation}",
            frame,
            node_id="s",
            namespace=namespace,
            key=key or ("k" if stores else None),
            value=value if stores else None,
            after=after,
        )

    @rule(
        operation=st.sampled_from(["read", "write", "update"]),
        node=st.sampled_from(MEMORY_NODES),
        key=keys,
        expected=st.none() | st.sampled_from([0, 3, "{{r.version}}"]),
        value=templates,
        subject=st.sampled_from([{"kind": "kind", "id": "1"}, "kind"]),
        frame=frames,
        after=afters,
    )
    def use_memory(
        self, operation: str, node: str, key: str, expected: Any, value: Any, subject: Any, frame: Frame, after: Any
    ) -> None:
        more = {
            "read": {},
            "write": {"value": value, "expected_version": expected},
            "update": {"operation": "append", "value": value},
        }[operation]
        body = {"scope": "shared", "subject": subject, "key": key, "type": "Json", "after": after}
        self.say(f"memory.{operation}", frame, node_id=node, **body, **more)

    @precondition(lambda self: self.commands)
    @rule(data=st.data(), version=st.integers(1, 5), value=values)
    def answer_a_command(self, data: st.DataObject, version: int, value: Any) -> None:
        command = self.commands.pop(data.draw(st.integers(0, len(self.commands) - 1)))
        ends = ["memory.rejected"]
        match command.type:
            case "memory.read":
                ends += ["memory.found", "memory.found", "memory.missing"]
            case "memory.write":
                ends += ["memory.written", "memory.conflicted"]
            case _:
                ends += ["memory.updated"]
        kind = data.draw(st.sampled_from(ends))
        body: dict[str, Any] = {
            "memory.rejected": {"code": "type_mismatch", "message": "m"},
            "memory.found": {"value": value, "version": version},
            "memory.missing": {"version": 0},
            "memory.written": {"version": version},
            "memory.updated": {"version": version, "value": value},
            "memory.conflicted": {"current_version": version},
        }[kind]
        asked_by, _ = self.asked[command.id]
        outcome = {"command_id": command.id, "command_source": command.source, "address": "a", **body}
        event = self.run.event(kind, outcome, f"outcome-{command.id}")
        self.compare(event, self.run.event(kind, {**outcome, "asked_by": asked_by}))

    @rule(path=paths)
    def complete(self, path: str) -> None:
        self.say("execution.completed", output={"last": f"{{{{{path}}}}}"})

    @precondition(lambda self: self.model.revision > 15)
    @rule(cancels=st.booleans())
    def stop(self, cancels: bool) -> None:
        if cancels:
            self.say("execution.cancelled")
        else:
            self.say("execution.failed", error="e")

    # -- what always holds

    @invariant()
    def the_size_is_the_sum_of_the_values(self) -> None:
        public = (data for entry, data in self.run.entries.items() if entry.startswith(entries.PUBLIC_PREFIXES))
        assert self.state.store_bytes == sum(map(len, public))

    @invariant()
    def replaying_the_changes_gives_the_state(self) -> None:
        assert self.kept == self.run.entries

    @invariant()
    def nothing_waits_after_the_end(self) -> None:
        if self.state.ended:
            assert all(request.sent or request.type in ENDINGS for request in self.state.requests)

    def teardown(self) -> None:
        """Let the run end: then every request has had exactly one answer, whatever came before."""
        if not self.model.started:
            self.start()
        if self.state.status == "running":
            self.say("execution.cancelled")
        while self.commands:
            command = self.commands.pop()
            asked_by, _ = self.asked[command.id]
            outcome = {"command_id": command.id, "command_source": command.source, "address": "a", "version": 0}
            event = self.run.event("memory.missing", outcome, f"outcome-{command.id}")
            self.compare(event, self.run.event("memory.missing", {**outcome, "asked_by": asked_by}))
        left = {request.event_id for request in self.state.requests}
        assert {request.type for request in self.state.requests} <= {"activity.scheduled"}
        for event_id in self.requests - left:
            assert len(self.answered[event_id]) >= 1, event_id
        finals = [kind for kinds in self.answered.values() for kind in kinds if kind != "activity.ready"]
        assert len(finals) <= sum(len(kinds) for kinds in self.answered.values())


TestRuns = Runs.TestCase
TestRuns.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, report_multiple_bugs=False)
