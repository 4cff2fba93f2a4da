"""Outputs that overtake `execution.started`: what needs the start waits for it, in order, and nothing is lost."""

import pytest

from schemas.exact_json import JsonObject
from schemas.limits import Limits
from tests.support.runs import Run, of_type

MAPPING: JsonObject = {"risk.score": "{{a.score}}", "risk.who": "{{input.who}}"}


def early(run: Run | None = None, **data: object) -> Run:
    run = run or Run()
    run.output("a", {"score": 3}, **{"output_mapping": MAPPING, **data})
    return run


def test_a_mapping_that_needs_the_input_is_applied_when_the_input_is_there() -> None:
    run = early()
    assert run.variables() == {}

    run.start(input={"who": "mia"})

    assert run.variables() == {"risk": {"score": 3, "who": "mia"}}
    assert (run.value("_prev"), len(run.state.requests)) == (run.value("nothing"), 0)
    assert b'"path":"input.who","found":true,"fallback":false,"node_id":"a"' in run.revisions[-1].body


@pytest.mark.parametrize("path", ["system.execution_id", "event.body", "nobody || input.who"])
def test_everything_that_only_the_start_tells_is_waited_for(path: str) -> None:
    run = early(output_mapping={"x": f"{{{{{path}}}}}"})
    assert run.variables() == {}
    run.start(input={"who": "run-1"}, event={"body": "run-1"})
    assert run.value("x") == "run-1"


@pytest.mark.parametrize("mapping", [{"x": "{{a.score}}"}, {"x": 3}, {"x": "{{a.score || input.who}}"}])
def test_a_mapping_that_needs_nothing_of_the_start_is_applied_at_once(mapping: JsonObject) -> None:
    assert early(output_mapping=mapping).variables() == {"x": 3}


def test_what_came_behind_an_output_that_waits_is_applied_behind_it() -> None:
    run = early()
    run.output("a", {"score": 4}, output_mapping={"risk.score": "{{a.score}}", "before": "{{risk.who}}"})
    run.output("b", {"n": 1})
    run.say("child.completed", node_id="c", child_execution_id="c-1", status="completed", outputs={"n": 2})
    run.say("child.completed", node_id="c", child_execution_id="c-1", status="failed", outputs={}, error="e")
    run.output("d", {"n": 3})
    run.say("activity.failed", activity_id="d", error="e")
    assert run.variables() == {}

    run.start(input={"who": "mia"})

    assert run.variables() == {"risk": {"score": 4, "who": "mia"}, "before": "mia", "b": {"n": 1}}


def test_who_references_what_an_output_will_set_waits_with_it() -> None:
    run = early()
    assert run.say("condition.evaluate", node_id="c", condition="{{risk.score}} > 2") == []
    assert run.say("activity.scheduled", activity_id="s", inputs={"x": "{{risk.who}}"}, after="a.score") == []
    assert run.say("activity.scheduled", activity_id="t", inputs={}, after="a.nothing") == []
    run.say("variables.set", variables={"risk": "mine"})

    answers = run.start(input={"who": "mia"})

    (evaluated,), (ready,) = of_type(answers, "condition.evaluated"), of_type(answers, "activity.ready")
    assert (evaluated.data["result"], ready.data["inputs"]) == (True, {"x": "mia"})
    assert [answer.data["node_id"] for answer in of_type(answers, "node.skipped")] == ["t"]
    assert run.value("risk") == "mine"


def test_an_output_ends_the_request_before_it_and_not_the_one_after_it() -> None:
    run = Run()
    run.say("activity.scheduled", activity_id="a", inputs={"n": "{{input.n}}"})
    early(run)
    again = run.event("activity.scheduled", {"activity_id": "a", "inputs": {"n": "{{input.n}}"}})
    run.apply(again)

    answers = run.start(input={"n": 1})

    assert [answer.type for answer in answers] == ["activity.ready", "activity.ready"]
    assert [request.event_id for request in run.state.requests] == [again.id]


def test_a_run_that_breaks_its_contract_at_the_start_still_has_its_early_outputs() -> None:
    run = early()
    run.output("b", {"n": 1})
    contract = {"inputs": [{"name": "url", "type": "string", "required": True}]}

    (finalized,) = run.start(input={"who": "mia"}, contract=contract)

    assert finalized.data["status"] == "failed"
    assert run.variables() == {"risk": {"score": 3, "who": "mia"}, "b": {"n": 1}}
    assert len(run.state.requests) == 0


def test_a_run_that_ends_before_it_starts_loses_no_output() -> None:
    run = early()
    run.say("execution.cancelled")
    run.output("b", {"n": 1})
    assert (run.variables(), len(run.state.requests)) == ({}, 2)

    (finalized,) = run.start(input={"who": "mia"})

    assert run.variables() == {"risk": {"score": 3, "who": "mia"}, "b": {"n": 1}}
    assert (finalized.data["status"], finalized.data["late"]) == ("cancelled", True)


def test_an_output_that_cannot_be_kept_at_the_start_fails_its_activity() -> None:
    run = Run()
    run.say("variables.set", variables={"risk": "a text"})
    run.say("activity.scheduled", activity_id="a", inputs={})
    output = run.event("activity.completed", {"activity_id": "a", "output": {"score": 3}, "output_mapping": MAPPING})
    assert run.apply(output) is not None
    run.say("activity.scheduled", activity_id="s", inputs={}, after="a")

    answers = run.start(input={"who": "mia"})

    (failed,) = of_type(answers, "node.failed")
    assert (failed.data["request_id"], failed.data["activity_id"]) == (output.id, "a")
    assert failed.data["code"] == "target_not_an_object"
    assert [answer.data["code"] for answer in of_type(answers, "node.skipped")] == ["port_absent"]
    assert run.variables() == {"risk": "a text"}
    assert len(run.state.requests) == 0


@pytest.mark.parametrize(
    ("data", "code", "dead_letter"),
    [
        ({"output": {"t": "x" * 2000}}, "output_too_large", True),
        ({"variables": {"input": 1}}, "reserved_name", False),
        ({"activity_id": "_prev"}, "reserved_name", None),
    ],
)
def test_an_output_that_could_never_be_kept_is_refused_at_once(
    data: JsonObject, code: str, dead_letter: bool | None
) -> None:
    run = Run(limits=Limits(output_bytes=1000))
    body: JsonObject = {"activity_id": "a", "output": {}, "output_mapping": MAPPING, **data}
    if dead_letter is None:
        assert run.refuse("activity.completed", **body) == code
        return

    (failed,) = run.say("activity.completed", **body)

    assert (failed.type, failed.data["code"]) == ("node.failed", code)
    assert (run.revisions[-1].dead_letter is not None) == dead_letter


def test_an_output_of_a_loop_waits_in_its_iteration() -> None:
    run = Run()
    loop = [{"node_id": "items", "index": 0}]
    run.output("read", {"n": 1}, output_mapping={"by": "{{input.who}}"}, iteration=loop)

    run.start(input={"who": "mia"})
    run.say("foreach.open", node_id="items", collection=[7], item_variable="item")
    (closed,) = run.say("foreach.close", node_id="items")

    assert closed.data["results"] == [{"by": "mia"}]


def test_a_request_that_an_early_failure_ends_before_its_turn_is_answered_once() -> None:
    run = Run()
    run.output("a", {"n": 0}, output_mapping={"x": "{{input.n}}"})
    run.say("condition.evaluate", node_id="gate", condition="{{a.n}} == 1")
    run.say("variables.set", variables={"x": "{{a.n}}"})
    run.say("activity.scheduled", activity_id="a", inputs={}, after="x")
    run.say("activity.failed", activity_id="a", error="e")

    answers = run.start(input={"n": 1})

    assert len([answer for answer in answers if answer.data["node_id"] == "a"]) == 1
    assert len(run.state.requests) == 0
