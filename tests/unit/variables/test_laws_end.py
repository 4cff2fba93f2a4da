"""How a run ends: what takes effect when, what is skipped, what comes late."""

import pytest

from schemas.envelope import Event
from schemas.errors import Rejection
from schemas.exact_json import JsonObject
from schemas.limits import Limits
from tests.support.runs import Run, of_type
from workers.logic.variables.references import MISSING

ITEM: JsonObject = {"scope": "shared", "subject": {"kind": "person", "id": "p1"}, "key": "last", "type": "String"}


def started(**data: object) -> Run:
    run = Run()
    run.start(**data)
    return run


def ask(run: Run, event_type: str, node_id: str, **data: object) -> list[Event]:
    fields: JsonObject = {"value": "v"} if event_type == "memory.write" else {}
    return run.say(event_type, node_id=node_id, **{**ITEM, **fields, **data})


def found(run: Run, command: Event, value: str = "x", version: int = 1) -> list[Event]:
    return run.outcome(command, "memory.found", value=value, version=version, type="String")


def written(run: Run, command: Event, version: int = 1) -> list[Event]:
    return run.outcome(command, "memory.written", version=version, expires_at="t")


def nodes(events: list[Event]) -> list[tuple[str, object]]:
    return [(event.type, event.data.get("node_id", event.data.get("key"))) for event in events]


# -- the end


def test_what_must_wait_after_the_end_is_skipped_at_once() -> None:
    run = started()
    ask(run, "memory.read", "seen")
    run.say("execution.cancelled")

    events = run.say("activity.scheduled", activity_id="a", inputs={"x": "{{seen.value}}"})

    assert nodes(events)[0] == ("node.skipped", "a")
    assert nodes(ask(run, "memory.write", "w"))[0] == ("node.skipped", "w")
    assert nodes(run.say("activity.scheduled", activity_id="b", inputs={}))[0] == ("activity.ready", "b")


def test_completion_waits_for_the_start() -> None:
    run = Run()
    assert run.say("execution.completed", output={"n": "{{input.n}}"}) == []

    (finalized,) = run.start(input={"n": 3})

    assert (finalized.data["status"], finalized.data["output"]) == ("completed", {"n": 3})


def test_the_first_end_counts() -> None:
    run = started()
    run.say("execution.failed", error="e")
    before = dict(run.entries)

    for event_type, data in (("execution.completed", {}), ("execution.cancelled", {"reason": "r"})):
        (finalized,) = run.say(event_type, **data)
        assert (finalized.data["status"], finalized.data["late"]) == ("failed", True)
    assert run.entries == before


def test_of_two_completions_the_first_is_taken() -> None:
    run = started()
    (read,) = ask(run, "memory.read", "seen")
    run.say("execution.completed", output=1)
    run.say("execution.completed", output=2)

    assert of_type(found(run, read), "execution.finalized")[0].data["output"] == 1


def test_a_run_that_failed_before_its_start_tells_its_parent_when_it_learns_of_it() -> None:
    run = Run("child")
    assert nodes(run.say("execution.failed", error="e")) == [("execution.finalized", None)]

    finalized, told = run.start(parent={"execution_id": "p", "node_id": "sub"})

    assert (finalized.data["status"], finalized.data["late"]) == ("failed", True)
    assert (told.type, told.subject, told.data["status"]) == ("child.completed", "p", "failed")


def test_a_request_that_waits_for_the_start_is_skipped_when_the_run_ends_before() -> None:
    run = Run()
    run.say("activity.scheduled", activity_id="a", inputs={"x": "{{input.n}}"})

    skipped, _ = run.say("execution.failed", error="e")

    assert (skipped.type, skipped.data["code"]) == ("node.skipped", "execution_ended")


def test_variables_that_still_wait_at_the_end_are_dropped_without_an_answer() -> None:
    run = started()
    ask(run, "memory.read", "seen")
    run.say("variables.set", variables={"x": "{{seen.value}}"})

    events = run.say("execution.cancelled")

    assert [event.type for event in events] == ["execution.finalized"]
    assert run.value("x") is MISSING


def test_an_end_keeps_what_nodes_gave_before() -> None:
    run = started()
    run.say("condition.evaluate", node_id="gate", condition="1 == 1")
    run.say("activity.scheduled", activity_id="a", inputs={})
    run.say("condition.evaluate", node_id="gate", condition="{{a.n}} == 1")

    run.say("execution.cancelled")

    assert run.value("gate.result") is True
    assert nodes(run.say("activity.scheduled", activity_id="b", inputs={}, after="a"))[0] == ("node.skipped", "b")


def test_what_a_waiting_request_holds_is_limited() -> None:
    run = Run(limits=Limits(waiting_bytes=500))
    run.start()
    run.output("big", {"text": "x" * 600})
    run.say("activity.scheduled", activity_id="a", inputs={})
    run.say("activity.scheduled", activity_id="b", inputs={})

    (on_arrival,) = run.say("activity.scheduled", activity_id="c", inputs={"x": "{{big.text}}", "y": "{{a.n}}"})
    assert run.say("activity.scheduled", activity_id="d", inputs={"x": "{{a.text}}", "y": "{{b.n}}"}) == []
    (later,) = run.output("a", {"text": "x" * 600})

    for failed in (on_arrival, later):
        assert (failed.type, failed.data["code"]) == ("node.failed", "result_too_large")


def test_a_reason_too_large_for_the_last_word_is_refused() -> None:
    run = started()

    with pytest.raises(Rejection) as refused:
        run.say("execution.cancelled", reason="x" * 2_000_000)

    assert refused.value.reason == "result_too_large"
