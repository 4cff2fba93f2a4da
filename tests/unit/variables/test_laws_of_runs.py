"""Laws of whole runs: batches, replays, the order in which memory answers, other executions, other workers."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.envelope import Event
from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue, dumps
from schemas.limits import DEFAULT_LIMITS, Limits
from tests.support.runs import NOW, Run
from workers.logic.variables import entries, fold
from workers.logic.variables.open_requests import Request
from workers.logic.variables.state import ExecutionKey, ExecutionState
from workers.logic.variables.step import Context
from workers.variables.rows import apply_changes, decode_changes, encode_changes

Asked = tuple[str, JsonObject]

START: Asked = (
    "execution.started",
    {"workflow": {"name": "f"}, "subjects": [{"kind": "person", "id": "p"}], "input": {"n": 7}},
)
#: References whose value does not depend on when memory answers: nodes, variables, the scratchpad, not what came last.
PATHS = (
    *("a.n", "b.n.y", "r.value", "r.version", "w.version", "w.value", "x", "y.z", "gate.result", "s.count", "item"),
    *("input.n", "memory.one.k", "outputs.a.parsed.n", "parallel_results.a.n", "loop.results.0", "r.value || x || a.n"),
)
AFTERS = ("a", "r.value", "w.version", "r.missing", "gate", "x")
VALUES: tuple[JsonValue, ...] = (0, "t", None, [1, 2], {"y": 1})


class Workflow:
    """A workflow made up from a seed: what an engine would publish, in order."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        events = [self.event() for _ in range(self.random.randrange(10, 40))]
        if self.random.random() < 0.5:
            body: JsonObject = {"node_id": "loop", "collection": "{{r.value}}", "item_variable": "item"}
            events.insert(self.random.randrange(len(events)), ("foreach.open", body))
        self.events = [START, *events, ("foreach.close", {"node_id": "loop"})]

    def __repr__(self) -> str:
        return f"Workflow({self.seed})"

    def choices(self) -> list[int]:
        return [self.random.randrange(100) for _ in range(100)]

    def template(self) -> JsonValue:
        return self.random.choice(VALUES) if self.random.random() < 0.4 else f"{{{{{self.random.choice(PATHS)}}}}}"

    def event(self) -> Asked:
        makers = {self.memory: 8, self.schedule: 2, self.complete: 6, self.set: 2, self.scratchpad: 2, self.ask: 2}
        event_type, body = self.random.choices(list(makers), list(makers.values()))[0]()
        if event_type != "activity.completed" and self.random.random() < 0.2:
            body["after"] = self.random.choice(AFTERS)
        if self.random.random() < 0.3:
            body["iteration"] = [{"node_id": "loop", "index": self.random.randrange(2)}]
        return event_type, body

    def memory(self) -> Asked:
        node, key = self.random.choice("rrw"), self.random.choice(("k1", "k2", "k3"))
        body: JsonObject = {"node_id": node, "scope": "shared", "subject": "person", "key": key, "type": "Json"}
        operation = self.random.choice(("read", "read", "write", "update"))
        if operation != "read":
            body["value"] = self.template()
        if operation == "update":
            body["operation"] = "append"
        if operation == "write" and self.random.random() < 0.5:
            body["expected_version"] = self.random.choice((0, 1, "{{r.version}}"))
        return f"memory.{operation}", body

    def schedule(self) -> Asked:
        return "activity.scheduled", {"activity_id": self.random.choice("abc"), "inputs": {"i": self.template()}}

    def complete(self) -> Asked:
        return "activity.completed", {
            "activity_id": self.random.choice("abc"),
            "output": {"n": self.random.choice(VALUES)},
        }

    def set(self) -> Asked:
        return "variables.set", {"variables": {self.random.choice(("x", "y.z")): self.template()}}

    def scratchpad(self) -> Asked:
        operation = self.random.choice(("write", "append", "read", "summarize"))
        body: JsonObject = {"node_id": "s", "namespace": "one", "key": "k", "value": self.template() or "v"}
        return f"scratchpad.{operation}", body

    def ask(self) -> Asked:
        if self.random.random() < 0.5:
            return "parallel.join", {"node_id": "join", "branches": ["a", "b"]}
        return "condition.evaluate", {"node_id": "gate", "condition": f"{{{{{self.random.choice(PATHS)}}}}} exists"}


workflows = st.integers(0, 2**32).map(Workflow)


class Memory:
    """Durable memory as one run sees it: versions by item, each command answered once."""

    def __init__(self) -> None:
        self.items: dict[str, tuple[int, Any]] = {}

    def outcome(self, address: str, command: Event) -> Event:
        version, value = self.items.get(address, (0, None))
        data: JsonObject = {"command_id": command.id, "command_source": command.source, "address": address}
        expected = command.data.get("expected_version")
        if command.type == "memory.read":
            kind = "memory.found" if version else "memory.missing"
            data |= {"value": value, "version": version} if version else {"version": 0}
        elif expected is not None and expected != version:
            kind = "memory.conflicted"
            data["current_version"] = version
        else:
            written = command.data["value"]
            self.items[address] = (version + 1, [value, written] if command.type == "memory.update" else written)
            kind = "memory.written" if command.type == "memory.write" else "memory.updated"
            data |= {"version": version + 1, "value": self.items[address][1]}
        return Event(id=f"o-{command.id}", source="/tallystick/memory", type=kind, subject=command.subject, data=data)


class Player:
    """Plays events and the outcomes of their commands; `choices` say after each event how many outcomes come, and which."""

    def __init__(
        self,
        events: Sequence[Asked],
        choices: Sequence[int] = (),
        execution_id: str = "run-1",
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.run = Run(execution_id, limits=limits)
        self.memory = Memory()
        self.waiting: list[tuple[str, Event]] = []
        self.commands: dict[str, list[JsonObject]] = defaultdict(list)
        self.answers: dict[str, list[bytes]] = defaultdict(list)
        #: Requests of activities that ended before their inputs were bound: no engine that waits for them does so.
        self.overtaken: set[str] = set()
        self.applied: list[Event] = []
        rest = list(choices)
        for event_type, body in events:
            self.apply(self.run.event(event_type, body))
            count = rest.pop() % 4 if rest else 0
            for _ in range(min(count, len(self.waiting))):
                self.answer(rest.pop() if rest else 0)
        while self.waiting:
            self.answer(rest.pop() if rest else 0)

    def answer(self, choice: int) -> None:
        self.apply(self.memory.outcome(*self.waiting.pop(choice % len(self.waiting))))

    def apply(self, event: Event) -> None:
        try:
            revision = self.run.apply(event)
        except Rejection:
            return  # a variables.set that nobody could be told of
        assert revision is not None
        self.applied.append(event)
        for outgoing in revision.outgoing:
            if outgoing.event.type.startswith("memory."):
                self.waiting.append((outgoing.key, outgoing.event))
                self.commands[outgoing.key].append(outgoing.event.data)
            elif outgoing.event.type != "execution.finalized":
                # In a skip's message one of several reasons is named: the one that came first.
                beside = ("input", "reads", "message") if outgoing.event.type == "node.skipped" else ("input", "reads")
                said = {name: value for name, value in outgoing.event.data.items() if name not in beside}
                self.answers[str(said.get("request_id"))].append(dumps([outgoing.event.type, said]))
                if said.get("code") == "already_ended":
                    self.overtaken.add(str(said["request_id"]))

    def told(self, leave_out: Collection[str]) -> dict[str, list[bytes]]:
        """Return what was answered, by request."""
        return {request: sorted(said) for request, said in self.answers.items() if request not in leave_out}

    def store(self) -> dict[str, bytes]:
        """Return the variables without what depends on when it is asked: the pointers, and the machine's own."""
        return {entry: data for entry, data in self.run.entries.items() if entry.startswith(entries.PUBLIC_PREFIXES)}


def one_at_a_time(events: Sequence[Asked]) -> list[Asked]:
    """Leave out requests for an activity that is under way: an end then ends what is ready, a matter of time."""
    under_way: set[bytes] = set()
    kept = []
    for event_type, body in events:
        place = dumps([body.get("activity_id"), body.get("iteration")])
        if event_type == "activity.scheduled":
            if place in under_way:
                continue
            under_way.add(place)
        elif event_type == "activity.completed":
            under_way.discard(place)
        kept.append((event_type, body))
    return kept


@given(workflows)
@settings(deadline=None)
def test_a_runs_result_does_not_depend_on_when_memory_answers(
    workflow: Workflow,
) -> None:
    events = one_at_a_time(workflow.events)
    first, second = Player(events, workflow.choices()), Player(events, workflow.choices())

    assert first.commands == second.commands
    overtaken = first.overtaken | second.overtaken
    assert first.told(overtaken) == second.told(overtaken)
    assert first.store() == second.store()
    assert first.memory.items == second.memory.items


@given(workflows)
@settings(deadline=None)
def test_after_all_outcomes_only_activities_can_be_outstanding_and_what_waits_for_them(
    workflow: Workflow,
) -> None:
    player = Player(workflow.events, workflow.choices())

    def leads_to_an_activity(request: Request) -> bool:
        if request.type == "activity.scheduled" and request.sent:
            return True
        waiting = player.run.state.requests.waiting(request.key)
        ahead = player.run.state.requests.first_in(request.domain) if request.domain is not None else None
        causes = [player.run.state.requests.get(key) for key in (waiting.left if waiting else ())]
        causes += [ahead] if ahead is not None and ahead.key != request.key else []
        return any(cause is not None and leads_to_an_activity(cause) for cause in causes)

    assert all(leads_to_an_activity(request) for request in player.run.state.requests)
    kept_answers = [entry.split("/")[1] for entry in player.run.entries if entry.startswith(entries.ANSWERED)]
    assert all(player.run.state.requests.waiting(key) for key in kept_answers)


@given(workflows)
@settings(deadline=None)
def test_two_workers_give_the_same_bytes_and_any_prefix_of_changes_gives_the_state(
    workflow: Workflow,
) -> None:
    player = Player(workflow.events, workflow.choices())
    again = Run()
    kept: dict[str, bytes] = {}
    for event, revision in zip(player.applied, player.run.revisions, strict=True):
        assert again.apply(event) == revision
        apply_changes(kept, decode_changes(encode_changes(revision.changes)))
        assert kept == again.entries


@given(workflows, st.lists(st.integers(1, 9), min_size=1, max_size=60))
@settings(deadline=None)
def test_the_fold_is_the_same_in_any_cut_of_batches_on_a_state_that_lives_or_is_loaded_in_any_order(
    workflow: Workflow, cuts: list[int]
) -> None:
    player = Player(workflow.events, workflow.choices())
    kept: dict[str, bytes] = {}
    head: bytes | None = None
    state = ExecutionState.load(ExecutionKey("default", "run-1"), head, kept)
    left, size = cuts[0], 0
    for event, expected in zip(player.applied, player.run.revisions, strict=True):
        revision = fold.apply(state, event, context=Context(NOW, DEFAULT_LIMITS))
        assert revision == expected
        apply_changes(kept, revision.changes.items())
        head = state.head
        left -= 1
        if left == 0:
            state.committed()
            size += 1
            left = cuts[size % len(cuts)]
            if left % 2:  # a worker that recovered: the changelog gives the entries in another order
                kept = dict(sorted(kept.items(), key=lambda item: item[0][::-1]))
                state = ExecutionState.load(ExecutionKey("default", "run-1"), head, kept)


@given(workflows, st.data())
@settings(deadline=None)
def test_a_refused_event_leaves_no_trace(workflow: Workflow, data: st.DataObject) -> None:
    player = Player(workflow.events, workflow.choices())
    where = data.draw(st.integers(0, len(player.applied)))
    refused = [
        START,
        ("variables.set", {"variables": {"x": "{{r.value}}", "input": 1}}),
        ("variables.set", {"variables": {"x": "{{"}}),
        ("variables.set", {"variables": {"fresh": 1, "large": "t" * DEFAULT_LIMITS.result_bytes}}),
    ]
    state = ExecutionState.load(ExecutionKey("default", "run-1"), None, {})
    for index, (event, expected) in enumerate(zip(player.applied, player.run.revisions, strict=True)):
        if index == max(where, 1):
            for number, (event_type, body) in enumerate(refused):
                wrong = Event(id=f"wrong-{number}", source="/e", type=event_type, subject="run-1", data=body)
                try:
                    fold.apply(state, wrong, context=Context(NOW, DEFAULT_LIMITS))
                except Rejection:
                    continue
                raise AssertionError(event_type)
        assert fold.apply(state, event, context=Context(NOW, DEFAULT_LIMITS)) == expected
    assert state.head == player.run.head
    assert [request.key for request in state.requests] == [request.key for request in player.run.state.requests]


@given(workflows, workflows)
@settings(deadline=None, max_examples=30)
def test_no_execution_reads_another(workflow: Workflow, others: Workflow) -> None:
    alone = Player(workflow.events)
    both, other = Run("run-1"), Run("other")
    for (event_type, body), event in zip(others.events, alone.applied, strict=False):
        other.apply(other.event(event_type, body)) if event_type != "variables.set" else None
        both.apply(event)
    for event in alone.applied[len(others.events) :]:
        both.apply(event)

    assert both.entries == alone.run.entries
    assert [revision.body for revision in both.revisions] == [revision.body for revision in alone.run.revisions]


@given(workflows)
@settings(deadline=None)
def test_every_request_has_exactly_one_answer_once_the_run_has_ended(workflow: Workflow) -> None:
    player = Player([*workflow.events, ("execution.cancelled", {})])
    for request in player.run.state.requests:
        raise AssertionError(f"{request.type} of {request.node_id} is open")
    answered: dict[str, int] = defaultdict(int)
    for outgoing in player.run.sent:
        if "request_id" in outgoing.event.data:
            answered[str(outgoing.event.data["request_id"])] += 1
    asked = [event.id for event in player.applied if "node_id" in event.data or event.type == "activity.scheduled"]

    assert answered == dict.fromkeys(asked, 1)


objects = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from("abc"), objects, max_size=3),
    st.lists(st.sampled_from("abc"), min_size=2, max_size=4),
    objects,
)
@settings(deadline=None)
def test_a_mapping_never_drops_a_sibling(before: dict[str, Any], path: list[str], value: Any) -> None:
    run = Run()
    run.start()
    run.say("variables.set", variables={"top": before})
    run.output("step", {"v": value}, output_mapping={".".join(("top", *path)): "{{step.v}}"})
    after = run.value("top")

    if run.sent and run.sent[-1].event.type == "node.failed":
        assert after == before
        return
    inside: Any = after
    was: Any = before
    for part in path:
        assert {name: inside[name] for name in inside if name != part} == {
            name: was[name] for name in was if name != part
        }
        inside, was = inside[part], was.get(part) or {} if isinstance(was, dict) else {}
    assert inside == value
