"""Laws of events that set free too much for one revision: they go on in the next, and nothing else changes."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.exact_json import JsonObject, JsonValue
from schemas.limits import DEFAULT_LIMITS, Limits
from tests.support.runs import NOW, Run, of_type
from tests.unit.variables.test_laws_of_runs import Player, Workflow, workflows
from workers.logic.memory.items import Item
from workers.logic.variables import entries, fold
from workers.logic.variables.rest import unfinished
from workers.logic.variables.simulation import NeedsMemory
from workers.logic.variables.state import ExecutionState
from workers.logic.variables.step import Context, Outgoing, RealMemory

#: A step that may do one thing at a time, and some that may do a few.
budgets = st.sampled_from([0, 300, 1000, 3000])


def limits_of(step_bytes: int) -> Limits:
    return replace(DEFAULT_LIMITS, step_bytes=step_bytes)


def said(sent: list[Outgoing]) -> list[tuple[str, str, str, object]]:
    """Return what went out, in order, but for the revisions' numbers."""
    return [
        (out.topic.value, out.key, out.event.id, out.event.data)
        for out in sent
        if out.event.type != "execution.finalized"
    ]


@given(workflows, budgets, st.booleans())
@settings(deadline=None)
def test_a_run_in_parts_says_the_same_in_the_same_order_and_ends_with_the_same_store(
    workflow: Workflow, step_bytes: int, ends: bool
) -> None:
    events = [*workflow.events, *([("execution.cancelled", {})] if ends else [("execution.completed", {})])]
    choices = workflow.choices()
    whole, cut = Player(events, choices), Player(events, choices, limits=limits_of(step_bytes))

    assert said(cut.run.sent) == said(whole.run.sent)
    assert cut.run.entries.keys() - {entries.FINAL} == whole.run.entries.keys() - {entries.FINAL}
    assert cut.run.entries == whole.run.entries
    assert cut.run.state.status == whole.run.state.status
    reads = [[read for revision in run.revisions for read in _reads(revision)] for run in (whole.run, cut.run)]
    assert reads[0] == reads[1]


def _reads(revision: fold.Revision) -> list[JsonValue]:
    reads = revision.said["reads"]
    assert isinstance(reads, list)
    return reads


@given(workflows, budgets)
@settings(deadline=None)
def test_a_state_kept_in_memory_goes_on_as_one_that_was_loaded(workflow: Workflow, step_bytes: int) -> None:
    player = Player(workflow.events, workflow.choices(), limits=limits_of(step_bytes))
    kept: dict[str, bytes] = {}
    state = ExecutionState.load(player.run.state.key, None, kept)
    context = Context(NOW, limits_of(step_bytes))
    found: list[fold.Revision] = []
    for event in player.applied:
        revision = fold.apply(state, event, context=context)
        while revision is not None:
            found.append(revision)
            revision = fold.go_on(state, context=context) if revision.rest is not None else None

    assert found == player.run.revisions


def waiting(run: Run, count: int, inputs: str = "{{big.text}}") -> None:
    run.start()
    run.say("activity.scheduled", activity_id="big", inputs={})
    for number in range(count):
        assert run.say("activity.scheduled", activity_id=f"after-{number}", inputs={"text": inputs}) == []


def test_what_one_answer_sets_free_is_left_to_further_revisions_beyond_the_limit() -> None:
    run = Run(limits=limits_of(10_000))
    waiting(run, 40)
    before = len(run.revisions)

    answers = run.output("big", {"text": "x" * 1000})

    made = run.revisions[before:]
    assert [answer.data["activity_id"] for answer in answers] == [f"after-{number}" for number in range(40)]
    assert {str(answer.data["inputs"]) for answer in answers} == {str({"text": "x" * 1000})}
    assert len(made) > 4
    assert all(sum(len(out.value) for out in revision.outgoing) < 12_000 for revision in made)
    assert [revision.said["cause"].get("part") for revision in made] == [None, *range(2, len(made) + 1)]  # type: ignore[union-attr]
    assert [revision.rest is None for revision in made] == [*(False for _ in made[1:]), True]
    assert not any(entry.startswith("x/") for entry in run.entries)


def test_a_value_that_many_wait_for_is_kept_once_for_the_next_revision() -> None:
    run = Run(limits=limits_of(60_000))
    run.start()
    run.say("activity.scheduled", activity_id="big", inputs={})
    for number in range(400):
        inputs: JsonObject = {"one": "{{big.text}}", "same": "{{last_output.text}}"}
        run.say("activity.scheduled", activity_id=f"after-{number}", inputs=inputs, after="big")
    state = run.state

    output = run.event("activity.completed", {"activity_id": "big", "output": {"text": "x" * 50_000}})
    fold.apply(state, output, context=Context(NOW, run.limits))

    left = unfinished(state)
    assert left is not None
    assert left.content["values"] == ["x" * 50_000]


def test_a_simulated_run_that_goes_on_asks_for_the_memory_that_it_lacks_and_is_left_as_it_was() -> None:
    run = Run(limits=limits_of(0), memory=RealMemory())
    run.start(simulation=True)
    run.say("activity.scheduled", activity_id="big", inputs={})
    run.say("activity.scheduled", activity_id="other", inputs={"n": "{{big.n}}"})
    body: JsonObject = {"scope": "workflow", "subject": "workflow-global", "key": "k", "type": "Json"}
    run.say("memory.read", node_id="read", after="big", **body)
    state, context = run.state, Context(NOW, run.limits, memory=run.memory)
    fold.apply(state, run.event("activity.completed", {"activity_id": "big", "output": {"n": 1}}), context=context)
    for _ in range(2):  # the read is set free, the other one runs
        fold.go_on(state, context=context)
    before = unfinished(state)

    with pytest.raises(NeedsMemory) as needs:
        fold.go_on(state, context=context)

    assert unfinished(state) == before
    assert before is not None
    items = {address: Item(address) for address in needs.value.addresses}
    revision = fold.go_on(state, context=context._replace(memory=RealMemory(items=items)))
    assert [out.event.type for out in revision.outgoing] == ["node.answered"]


def test_answers_that_waiting_requests_keep_for_later_are_left_to_further_revisions_too() -> None:
    run = Run(limits=limits_of(10_000))
    run.start()
    for activity in ("big", "small"):
        run.say("activity.scheduled", activity_id=activity, inputs={})
    for number in range(40):
        run.say("activity.scheduled", activity_id=f"after-{number}", inputs={"b": "{{big.text}}", "s": "{{small.n}}"})
    before = len(run.revisions)

    assert run.output("big", {"text": "x" * 1000}) == []
    made = run.revisions[before:]

    assert len(made) > 4
    assert all(sum(map(len, filter(None, revision.changes.values()))) < 20_000 for revision in made)
    assert len(of_type(run.output("small", {"n": 1}), "activity.ready")) == 40


def test_what_waits_for_the_start_is_left_to_further_revisions_too() -> None:
    run = Run(limits=limits_of(10_000))
    for number in range(40):
        run.say("activity.scheduled", activity_id=f"after-{number}", inputs={"text": "{{input.text}}"})

    answers = run.start(input={"text": "x" * 1000})

    assert [answer.data["activity_id"] for answer in answers] == [f"after-{number}" for number in range(40)]
    assert len(run.revisions) > 44


def test_a_run_is_complete_when_the_rest_is_done() -> None:
    run = Run(limits=limits_of(1000))
    run.start()
    run.say("activity.scheduled", activity_id="big", inputs={})
    for number in range(10):
        run.say("condition.evaluate", node_id=f"c-{number}", condition="{{big.text}} exists")
    assert run.say("execution.completed") == []

    answers = run.output("big", {"text": "x" * 1000})

    assert [answer.type for answer in answers] == [*["condition.evaluated"] * 10, "execution.finalized"]
    assert not any(revision.said["late"] for revision in run.revisions)


def test_a_run_that_starts_after_its_end_tells_its_parent_once() -> None:
    run = Run(limits=limits_of(0))
    for number in range(5):
        run.say(
            "activity.completed",
            activity_id=f"early-{number}",
            output={"n": 1},
            output_mapping={f"v{number}": "{{input.n}}"},
        )
    run.say("execution.cancelled")

    told = run.start(input={"n": 7}, parent={"execution_id": "parent", "node_id": "child"})

    assert len(of_type(told, "child.completed")) == 1
    assert run.value("v4") == 7
    assert run.revisions[-1].said["cause"]["part"] > 2  # type: ignore[index,call-overload,operator]
