"""Order and waiting where requests meet: skipped ones, repeated nodes, loops that are being opened, late ones."""

import pytest

from schemas.envelope import Event
from schemas.exact_json import JsonObject
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


# -- one item, one namespace


def test_a_skipped_request_lets_nobody_behind_it_overtake_the_ones_before_it() -> None:
    run = started()
    (gate,) = ask(run, "memory.read", "gate", key="other")
    (first,) = ask(run, "memory.write", "one")
    ask(run, "memory.write", "two", after="gate.value")
    ask(run, "memory.write", "three")

    skipped = run.outcome(gate, "memory.missing", version=0)

    assert nodes(skipped) == [("node.answered", "gate"), ("node.skipped", "two")]
    assert nodes(of_type(written(run, first), "memory.write")) == [("memory.write", "last")]


def test_a_request_that_was_skipped_on_arrival_hides_nobody_at_its_item() -> None:
    run = started()
    (gate,) = ask(run, "memory.read", "gate", key="other")
    run.outcome(gate, "memory.missing", version=0)
    ask(run, "memory.write", "one")
    ask(run, "memory.write", "two", after="gate.value")

    assert ask(run, "memory.write", "three") == []


def test_an_address_that_is_known_late_takes_its_turn_behind_those_already_there() -> None:
    run = started()
    run.say("activity.scheduled", activity_id="agent", inputs={})
    assert ask(run, "memory.write", "late", key="{{agent.key}}") == []
    (first,) = ask(run, "memory.write", "first")
    assert run.output("agent", {"key": "last"}) == []
    assert ask(run, "memory.write", "behind") == []

    (late,) = of_type(written(run, first), "memory.write")
    (behind,) = of_type(written(run, late, 2), "memory.write")

    assert [event.data["writer"]["node_id"] for event in (first, late, behind)] == ["first", "late", "behind"]


def test_a_failed_request_lets_the_next_at_its_item_go() -> None:
    run = started()
    (first,) = ask(run, "memory.write", "one")
    ask(run, "memory.read", "two")

    events = run.outcome(first, "memory.rejected", code="type_mismatch", message="m")

    assert nodes(events) == [("node.failed", "one"), ("memory.read", "last")]


def test_a_list_of_conversations_comes_after_the_messages_that_are_being_added() -> None:
    run = started()
    (add,) = run.say("conversation.add", node_id="add", id="c1", role="user", content="hello")

    assert run.say("conversation.get_all", node_id="all") == []

    events = run.outcome(add, "conversation.added", success=True, memories=[], count=1)
    assert [event.type for event in events] == ["node.answered", "conversation.get_all"]


def test_a_reference_to_the_scratchpad_waits_for_what_is_being_written_there() -> None:
    run = started()
    run.say("activity.scheduled", activity_id="agent", inputs={})
    run.say("scratchpad.write", node_id="w", namespace="n", key="k", value="{outputs.agent.parsed.text}")
    assert run.say("activity.scheduled", activity_id="use", inputs={"x": "{{memory.n.k}}"}) == []

    events = run.output("agent", {"text": "t"})

    assert of_type(events, "activity.ready")[0].data["inputs"] == {"x": "t"}


def test_a_reference_to_the_scratchpad_means_the_last_that_ends_before_it() -> None:
    run = started()
    run.say("activity.scheduled", activity_id="agent", inputs={})
    run.say("activity.scheduled", activity_id="gate", inputs={})
    run.say("scratchpad.write", node_id="w1", key="k", value="{outputs.agent.text}")
    run.say("scratchpad.write", node_id="w2", key="k", value="never", after="gate.ok")
    run.say("activity.scheduled", activity_id="use", inputs={"x": "{{memory.default.k}}"})

    assert nodes(run.output("gate", {"no": 1})) == [("node.skipped", "w2")]
    events = run.output("agent", {"text": "t"})

    assert of_type(events, "activity.ready")[0].data["inputs"] == {"x": "t"}


# -- repeated nodes


def test_an_older_request_that_is_answered_late_does_not_replace_the_newer_answer() -> None:
    run = started()
    (older,) = ask(run, "memory.read", "seen", key="a")
    (newer,) = ask(run, "memory.read", "seen", key="b")
    run.say("activity.scheduled", activity_id="after-both", inputs={"v": "{{seen.value}}"})

    (_, ready) = found(run, newer, "new")
    assert ready.data["inputs"] == {"v": "new"}
    assert nodes(found(run, older, "old")) == [("node.answered", "seen")]

    assert run.value("seen.value") == "new"
    assert run.ready({"l": "{{last_output.value}}"}) == {"l": "new"}


def test_a_skipped_node_is_null_for_those_that_come_later_too() -> None:
    run = started()
    (first,) = ask(run, "memory.write", "reserve", expected_version=0)
    written(run, first, 3)
    ask(run, "memory.write", "reserve", expected_version="{{never.version}}")

    assert run.ready({"v": "{{reserve.version}}"}) == {"v": None}


def test_a_completion_ends_what_was_ready_and_not_what_waits_for_it() -> None:
    run = started()
    run.say("activity.scheduled", activity_id="step", inputs={})
    assert run.say("activity.scheduled", activity_id="step", inputs={"before": "{{step.n}}"}) == []

    (ready,) = run.output("step", {"n": 1})

    assert (ready.type, ready.data["inputs"]) == ("activity.ready", {"before": 1})


def test_an_output_that_comes_before_its_inputs_were_bound_still_reaches_those_who_wait_for_it() -> None:
    run = started()
    (read,) = ask(run, "memory.read", "seen")
    run.say("activity.scheduled", activity_id="step", inputs={"x": "{{seen.value}}"})
    run.say("activity.scheduled", activity_id="next", inputs={"y": "{{step.out}}"}, after="step.out")

    skipped, ready = run.output("step", {"out": 5})

    assert (skipped.type, skipped.data["code"]) == ("node.skipped", "already_ended")
    assert ready.data["inputs"] == {"y": 5}
    assert nodes(found(run, read)) == [("node.answered", "seen")]


def test_a_refused_request_does_not_end_the_one_before_it() -> None:
    run = started()
    run.say("activity.scheduled", activity_id="step", inputs={})

    (failed,) = run.say("activity.scheduled", activity_id="step", inputs={"x": "{{"})
    assert failed.data["code"] == "template_invalid"
    assert len(run.state.requests) == 1

    run.output("step", {"n": 1})
    assert run.value("step.n") == 1


def test_variables_are_set_in_the_order_of_their_events() -> None:
    run = started()
    (read,) = ask(run, "memory.read", "seen")
    run.say("variables.set", variables={"x": "{{seen.value}}"})
    run.say("variables.set", variables={"x": 2, "y": 2})

    found(run, read, "one")

    assert (run.value("x"), run.value("y")) == (2, 2)


# -- after


def test_after_may_name_a_variable_that_is_being_set() -> None:
    run = started()
    (read,) = ask(run, "memory.read", "seen")
    run.say("variables.set", variables={"copy": {"field": "{{seen.value}}"}})
    assert run.say("activity.scheduled", activity_id="a", inputs={}, after="copy.field") == []
    assert run.say("activity.scheduled", activity_id="b", inputs={}, after="copy.other") == []

    events = found(run, read)

    assert nodes(events) == [("node.answered", "seen"), ("node.skipped", "b"), ("activity.ready", "a")]


def test_every_port_that_after_names_must_be_there() -> None:
    run = started()
    (reserve,) = ask(run, "memory.write", "reserve")
    run.say("activity.scheduled", activity_id="a", inputs={}, after=["reserve.conflict", "reserve.version"])

    assert nodes(written(run, reserve)) == [("node.answered", "reserve"), ("node.skipped", "a")]


@pytest.mark.parametrize("answered_first", [True, False])
def test_done_is_a_port_of_every_node_that_ended_well(answered_first: bool) -> None:
    run = started()
    run.say("activity.scheduled", activity_id="a", inputs={})
    if answered_first:
        run.output("a", {"n": 1})
    said = run.say("activity.scheduled", activity_id="b", inputs={}, after="a.done")
    if not answered_first:
        said = run.output("a", {"n": 1})

    assert nodes(said) == [("activity.ready", "b")]


def test_what_comes_after_a_node_means_its_output_by_the_last_output() -> None:
    run = started()
    run.output("earlier", {"text": "earlier"})
    run.say("activity.scheduled", activity_id="agent", inputs={})
    run.say("scratchpad.write", node_id="w", key="k", after="agent")
    run.say("activity.scheduled", activity_id="use", inputs={"p": "{{_prev.text}}"}, after="agent")

    events = run.output("agent", {"text": "t"})

    (result,) = of_type(events, "scratchpad.result")
    assert (result.data["input"], run.value("memory.default.k")) == ({"text": "t"}, MISSING)
    assert run.ready({"k": "{{memory.default.k}}"}) == {"k": {"text": "t"}}
    assert of_type(events, "activity.ready")[0].data["inputs"] == {"p": "t"}


def test_an_after_on_a_node_that_failed_before_skips_and_on_one_never_asked_does_not() -> None:
    run = started()
    run.say("activity.failed", activity_id="a", error="e")

    assert nodes(run.say("activity.scheduled", activity_id="b", inputs={}, after="a")) == [("node.skipped", "b")]
    assert nodes(run.say("activity.scheduled", activity_id="c", inputs={}, after="nobody.port")) == [
        ("activity.ready", "c")
    ]


# -- references that need not wait


def test_a_fallback_that_cannot_be_needed_is_not_waited_for() -> None:
    run = started()
    run.output("a", {"x": 1})
    run.say("activity.scheduled", activity_id="b", inputs={})

    (ready,) = run.say("activity.scheduled", activity_id="c", inputs={"v": "{{a.x || b.y}}"})

    assert ready.data["inputs"] == {"v": 1}


def test_a_fallback_that_may_be_needed_is_waited_for_and_what_is_known_is_bound_on_arrival() -> None:
    run = started()
    run.output("b", {"y": "old"})
    run.say("activity.scheduled", activity_id="a", inputs={})
    assert run.say("activity.scheduled", activity_id="c", inputs={"v": "{{a.x || b.y || b.z}}"}) == []
    run.output("b", {"y": "new"})

    (ready,) = run.output("a", {"x": None})

    assert ready.data["inputs"] == {"v": "old"}
    assert ready.data["reads"] == [{"path": "b.y", "found": True, "fallback": True}]


# -- loops


def test_a_body_waits_for_its_loop_to_be_opened() -> None:
    run = started()
    (read,) = ask(run, "memory.read", "seen")
    place = [{"node_id": "loop", "index": 1}]
    run.say("foreach.open", node_id="loop", collection="{{seen.value}}", item_variable="item")
    assert run.say("activity.scheduled", activity_id="body", inputs={"i": "{{item.n}}"}, iteration=place) == []
    assert run.say("foreach.close", node_id="loop") == []

    events = run.outcome(read, "memory.found", value=[{"n": 1}, {"n": 2}], version=1, type="Json")

    assert of_type(events, "activity.ready")[0].data["inputs"] == {"i": 2}
    (closed,) = of_type(run.output("body", {"r": 9}, iteration=place), "foreach.closed")
    assert closed.data["results"] == [None, {"r": 9}]


def test_an_item_is_not_taken_for_an_outstanding_node_of_the_same_name_outside() -> None:
    run = started()
    run.say("foreach.open", node_id="loop", collection=["a"], item_variable="document")
    run.say("activity.scheduled", activity_id="document", inputs={})

    (ready,) = run.say(
        "activity.scheduled", activity_id="b", inputs={"d": "{{document}}"}, iteration=[{"node_id": "loop", "index": 0}]
    )

    assert ready.data["inputs"] == {"d": "a"}


def test_a_request_of_the_own_iteration_is_meant_before_a_later_one_outside() -> None:
    run = started()
    place = [{"node_id": "loop", "index": 0}]
    run.say("foreach.open", node_id="loop", collection=["a"], item_variable="d")
    run.say("activity.scheduled", activity_id="agent", inputs={}, iteration=place)
    run.say("activity.scheduled", activity_id="agent", inputs={})
    run.say("activity.scheduled", activity_id="use", inputs={"x": "{{agent.n}}"}, iteration=place)

    (ready,) = run.output("agent", {"n": "inner"}, iteration=place)

    assert ready.data["inputs"] == {"x": "inner"}


def test_of_three_requests_of_one_node_only_the_last_counts() -> None:
    run = started()
    first, second, third = (ask(run, "memory.read", "seen", key=key)[0] for key in ("a", "b", "c"))

    for command, value in ((third, "third"), (second, "second"), (first, "first")):
        found(run, command, value)

    assert run.value("seen.value") == "third"


def test_a_request_that_gives_a_variable_called_like_a_node_is_not_taken_for_that_node() -> None:
    run = started()
    (read,) = ask(run, "memory.read", "seen")
    run.say("variables.set", variables={"gate": "{{seen.value}}"})
    run.say("condition.evaluate", node_id="gate", condition="1 == 1")

    found(run, read, "x")

    assert run.value("gate") == "x"


def test_a_reference_to_a_loop_that_is_being_opened_under_another_name_is_not_its_item() -> None:
    run = started()
    ask(run, "memory.read", "seen")
    run.say("foreach.open", node_id="loop", collection="{{seen.value}}", item_variable="item")

    (ready,) = run.say(
        "activity.scheduled", activity_id="a", inputs={"x": "{{other}}"}, iteration=[{"node_id": "loop", "index": 0}]
    )

    assert ready.data["inputs"] == {"x": None}


def test_a_null_that_is_known_lets_the_fallback_be_waited_for() -> None:
    run = started()
    run.output("a", {"x": None})
    run.say("activity.scheduled", activity_id="b", inputs={})
    assert run.say("activity.scheduled", activity_id="c", inputs={"v": "{{a.x || b.y}}"}) == []

    (ready,) = run.output("b", {"y": 2})

    assert ready.data["inputs"] == {"v": 2}


def test_a_fallback_is_not_waited_for_any_more_once_the_first_choice_is_answered() -> None:
    run = started()
    for node in ("a", "b", "c"):
        run.say("activity.scheduled", activity_id=node, inputs={})
    run.say("activity.scheduled", activity_id="use", inputs={"v": "{{a.x || b.y}}"})
    run.say("activity.scheduled", activity_id="more", inputs={"v": "{{a.x || b.y}}", "c": "{{c.z}}"})

    (ready,) = run.output("a", {"x": 1})
    assert ready.data["inputs"] == {"v": 1}

    (ready,) = run.output("c", {"z": 3})
    assert ready.data["inputs"] == {"v": 1, "c": 3}


def test_a_reference_to_the_scratchpad_is_null_where_the_last_before_it_clears_the_key() -> None:
    run = started()
    run.say("activity.scheduled", activity_id="agent", inputs={})
    run.say("scratchpad.write", node_id="w", key="k", value="{outputs.agent.text}")
    run.say("scratchpad.clear", node_id="c", key="k")
    run.say("activity.scheduled", activity_id="use", inputs={"x": "{{memory.default.k}}"})

    events = run.output("agent", {"text": "t"})

    assert of_type(events, "activity.ready")[0].data["inputs"] == {"x": None}
