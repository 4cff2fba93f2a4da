"""Order and waiting."""

from schemas.envelope import Event
from schemas.exact_json import JsonObject
from tests.support.runs import Run, of_type

ITEM: JsonObject = {"scope": "shared", "subject": {"kind": "person", "id": "p1"}, "key": "last", "type": "String"}


def read(run: Run, node_id: str = "seen", **data: object) -> list[Event]:
    return run.say("memory.read", node_id=node_id, **{**ITEM, **data})


def write(run: Run, node_id: str = "mark", **data: object) -> list[Event]:
    return run.say("memory.write", node_id=node_id, **{"value": "v", **ITEM, **data})


def test_a_request_waits_for_the_node_it_references() -> None:
    run = Run()
    run.start()
    (command,) = read(run)

    assert write(run, expected_version="{{seen.version}}") == []

    answer, released = run.outcome(command, "memory.found", value="x", version=7, type="String")
    assert answer.type == "node.answered"
    assert (released.type, released.data["expected_version"], released.data["read_version"]) == ("memory.write", 7, 7)


def test_what_is_awaited_is_filled_from_that_very_request() -> None:
    run = Run()
    run.start()
    (first,) = read(run)
    run.say("activity.scheduled", activity_id="use", inputs={"v": "{{seen.value}}"})
    read(run)  # the same node again, behind the first on the same item

    events = run.outcome(first, "memory.found", value="first", version=1, type="String")

    (ready,) = of_type(events, "activity.ready")
    assert ready.data["inputs"] == {"v": "first"}


def test_requests_on_one_item_run_in_their_order_each_after_the_outcome_before() -> None:
    run = Run()
    run.start()
    (first,) = write(run, "one")

    assert write(run, "two") == []
    assert write(run, "three") == []

    events = run.outcome(first, "memory.written", version=1, expires_at="t")
    (second,) = of_type(events, "memory.write")
    events = run.outcome(second, "memory.written", version=2, expires_at="t")
    (third,) = of_type(events, "memory.write")
    assert [event.data["writer"]["node_id"] for event in (first, second, third)] == ["one", "two", "three"]


def test_requests_on_other_items_go_ahead() -> None:
    run = Run()
    run.start()
    write(run, "one")

    (command,) = write(run, "two", key="other")

    assert command.data["key"] == "other"


def test_a_conditional_write_whose_version_comes_out_null_is_skipped() -> None:
    run = Run()
    run.start()

    (answer,) = write(run, expected_version="{{never.version}}")

    assert (answer.type, answer.data["code"]) == ("node.skipped", "expected_version_absent")


def test_a_port_that_was_not_emitted_skips_what_hangs_on_it_and_on_that() -> None:
    run = Run()
    run.start()
    (reserve,) = write(run, "reserve", expected_version=0)
    run.say("activity.scheduled", activity_id="alert", inputs={}, after="reserve.version")
    run.say("activity.scheduled", activity_id="log", inputs={}, after=["alert"])

    events = run.outcome(reserve, "memory.conflicted", expected_version=0, current_version=1)

    assert [(event.type, event.data["node_id"]) for event in events] == [
        ("node.answered", "reserve"),
        ("node.skipped", "alert"),
        ("node.skipped", "log"),
    ]


def test_a_port_that_was_emitted_lets_the_request_go_on() -> None:
    run = Run()
    run.start()
    (reserve,) = write(run, "reserve", expected_version=0)
    run.outcome(reserve, "memory.written", version=1, expires_at="t")

    (answer,) = run.say("activity.scheduled", activity_id="alert", inputs={}, after="reserve.version")

    assert answer.type == "activity.ready"


def test_a_node_that_was_never_requested_is_null_and_nobody_waits_for_it() -> None:
    run = Run()
    run.start()

    (answer,) = run.say("activity.scheduled", activity_id="a", inputs={"x": "{{never.value}}"}, after="never")

    assert answer.data["inputs"] == {"x": None}
    assert answer.data["missing"] == ["never.value"]


def test_a_rejected_request_fails_and_its_references_are_null() -> None:
    run = Run()
    run.start()
    (command,) = read(run)
    run.say("activity.scheduled", activity_id="a", inputs={"x": "{{seen.value}}"})

    failed, ready = run.outcome(command, "memory.rejected", code="type_mismatch", message="stored as Decimal")

    assert (failed.type, failed.data["code"]) == ("node.failed", "type_mismatch")
    assert ready.data["inputs"] == {"x": None}


def test_an_activity_is_outstanding_from_its_request_to_its_completion() -> None:
    run = Run()
    run.start()
    run.say("activity.scheduled", activity_id="a", inputs={})

    assert run.say("activity.scheduled", activity_id="b", inputs={"x": "{{a.out}}"}) == []

    (ready,) = run.output("a", {"out": 5})
    assert ready.data["inputs"] == {"x": 5}


def test_requests_before_the_start_wait_for_what_only_the_start_knows() -> None:
    run = Run()

    assert run.say("activity.scheduled", activity_id="a", inputs={"x": "{{input.n}}"}) == []
    assert (
        run.say("memory.write", node_id="m", scope="workflow", subject="patient", key="k", type="Integer", value=1)
        == []
    )

    events = run.start(input={"n": 3}, subjects=[{"kind": "patient", "id": "p9"}])

    assert {event.type for event in events} == {"activity.ready", "memory.write"}
    (command,) = of_type(events, "memory.write")
    assert command.data["subject"] == {"kind": "patient", "id": "p9"}
    assert command.data["workflow"] == "flow"


def test_completion_takes_effect_when_nothing_is_outstanding() -> None:
    run = Run()
    run.start()
    (command,) = read(run)

    assert run.say("execution.completed", output={"v": "{{seen.value}}"}) == []
    assert run.state.status == "running"

    events = run.outcome(command, "memory.found", value="x", version=1, type="String")

    (finalized,) = of_type(events, "execution.finalized")
    assert (finalized.data["status"], finalized.data["output"]) == ("completed", {"v": "x"})
    assert finalized.data["revision"] == run.state.revision == 4


def test_a_cancelled_run_skips_what_waits_and_takes_late_answers() -> None:
    run = Run()
    run.start()
    (command,) = read(run)
    write(run, expected_version="{{seen.version}}")

    skipped, finalized = run.say("execution.cancelled", reason="operator")
    assert (skipped.type, skipped.data["code"]) == ("node.skipped", "execution_ended")
    assert (finalized.data["status"], finalized.data["reason"]) == ("cancelled", "operator")

    events = run.outcome(command, "memory.found", value="x", version=1, type="String")
    assert [event.type for event in events] == ["node.answered", "execution.finalized"]
    assert run.value("seen.value") == "x"
    assert b'"late":true' in run.revisions[-1].body


def test_an_output_before_the_start_opens_the_store() -> None:
    run = Run()
    run.output("a", {"x": 1})
    assert run.state.status == "open"

    run.start(input={"n": 1})

    assert run.value("a.x") == 1
    assert run.value("input.n") == 1
    assert run.state.status == "running"


def test_an_event_after_the_end_is_applied_late_and_finalized_again() -> None:
    run = Run()
    run.start()
    run.say("execution.completed")

    (finalized,) = run.output("a", {"x": 1})

    assert finalized.type == "execution.finalized"
    assert finalized.data["late"] is True
    assert finalized.data["variables"]["a"] == {"x": 1}


def test_an_outcome_that_nobody_asked_for_is_not_recorded() -> None:
    run = Run()
    run.start()
    foreign = Event(id="c", source="/elsewhere", type="memory.read")

    assert run.outcome(foreign, "memory.missing", version=0) == []
    assert run.state.revision == 1


def test_variables_set_waits_for_what_it_references_and_others_wait_for_it() -> None:
    run = Run()
    run.start()
    (command,) = read(run)
    assert run.say("variables.set", variables={"copy": "{{seen.value}}"}) == []
    assert run.say("activity.scheduled", activity_id="a", inputs={"x": "{{copy}}"}) == []

    events = run.outcome(command, "memory.found", value="x", version=1, type="String")

    (ready,) = of_type(events, "activity.ready")
    assert ready.data["inputs"] == {"x": "x"}
    assert run.value("copy") == "x"


def test_a_thousand_requests_that_hang_on_each_other_end_in_order() -> None:
    run = Run()
    run.start()
    (command,) = read(run)
    for number in range(200):
        run.say(
            "variables.set", variables={f"v{number}": "{{seen.value}}" if number == 0 else f"{{{{v{number - 1}}}}}"}
        )

    run.outcome(command, "memory.found", value="x", version=1, type="String")

    assert run.value("v199") == "x"


def test_a_second_start_is_refused() -> None:
    run = Run()
    run.start()

    assert run.refuse("execution.started", workflow={"name": "flow"}) == "already_started"
