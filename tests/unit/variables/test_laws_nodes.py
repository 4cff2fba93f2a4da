"""Loops, branches, memory requests: what each node does at its edges."""

import pytest

from schemas.envelope import Event
from schemas.exact_json import JsonObject, JsonValue
from schemas.limits import Limits
from tests.support.runs import Run, of_type
from workers.logic.variables.references import MISSING

ITEM: JsonObject = {"scope": "shared", "subject": {"kind": "person", "id": "p1"}, "key": "last", "type": "String"}


def started(limits: Limits | None = None, **data: object) -> Run:
    run = Run(limits=limits) if limits is not None else Run()
    run.start(**data)
    return run


def at(*places: tuple[str, int]) -> list[JsonObject]:
    return [{"node_id": node_id, "index": index} for node_id, index in places]


def failed_code(events: list[Event]) -> JsonValue:
    (failed,) = events
    assert failed.type == "node.failed"
    return failed.data["code"]


# -- loops


def test_a_loop_that_is_opened_again_starts_empty_with_everything_inside_of_it() -> None:
    run = started()
    run.say("foreach.open", node_id="outer", collection=[1, 2], item_variable="o")
    run.say("foreach.open", node_id="inner", collection=[1], item_variable="i", iteration=at(("outer", 1)))
    run.output("body", {"x": 1}, iteration=at(("outer", 1), ("inner", 0)))
    run.output("mapped", {"x": 1}, output_mapping={"m": "{{mapped.x}}"}, iteration=at(("outer", 0)))

    run.say("foreach.open", node_id="outer", collection=[3], item_variable="o")

    (closed,) = run.say("foreach.close", node_id="outer")
    assert closed.data["results"] == [None]
    assert sorted(entry for entry in run.entries if entry.startswith(("w/", "g/"))) == ["g//outer", "w/outer[0]/o"]


def test_a_mapped_body_gives_the_variables_that_it_mapped() -> None:
    run = started()
    run.say("foreach.open", node_id="loop", collection=[1, 2], item_variable="i")
    for index in (0, 1):
        place = at(("loop", index))
        run.output("body", {"a": index, "b": 9}, output_mapping={"x.y": "{{body.a}}", "z": "{{i}}"}, iteration=place)

    (closed,) = run.say("foreach.close", node_id="loop")

    assert closed.data["results"] == [{"x": {"y": 0}, "z": 1}, {"x": {"y": 1}, "z": 2}]


def test_a_body_that_is_only_a_loop_gives_that_loops_results() -> None:
    run = started()
    run.say("foreach.open", node_id="outer", collection=["a", "b"], item_variable="o")
    for index in (0, 1):
        place = at(("outer", index))
        run.say("foreach.open", node_id="inner", collection=[1], item_variable="i", iteration=place)
        run.output("body", {"x": index}, iteration=[*place, *at(("inner", 0))])
        run.say("foreach.close", node_id="inner", iteration=place)

    (closed,) = run.say("foreach.close", node_id="outer")

    assert closed.data["results"] == [[{"x": 0}], [{"x": 1}]]


def test_bodies_that_took_different_branches_are_told_apart() -> None:
    run = started()
    run.say("foreach.open", node_id="loop", collection=[1, 2, 3], item_variable="i")
    run.output("left", {"x": 1}, iteration=at(("loop", 0)))
    run.output("right", {"x": 2}, iteration=at(("loop", 1)))

    (closed,) = run.say("foreach.close", node_id="loop")

    assert closed.data["results"] == [{"left": {"x": 1}}, {"right": {"x": 2}}, None]


def test_an_empty_loop_has_no_results() -> None:
    run = started()
    (opened,) = run.say("foreach.open", node_id="loop", collection=[], item_variable="i")
    (closed,) = run.say("foreach.close", node_id="loop")

    assert (opened.data["items"], closed.data["results"]) == ([], [])


def test_a_loop_that_was_never_opened_cannot_be_closed() -> None:
    assert failed_code(started().say("foreach.close", node_id="loop")) == "loop_unknown"


def test_what_happens_in_an_iteration_before_its_loop_is_opened_is_kept() -> None:
    run = started()
    run.output("body", {"x": 1}, iteration=at(("loop", 0)))
    run.say("foreach.open", node_id="loop", collection=[1], item_variable="i")

    (closed,) = run.say("foreach.close", node_id="loop")

    assert closed.data["results"] == [{"x": 1}]


def test_every_items_reads_are_recorded_once() -> None:
    run = started(input={"docs": [{"a": 1}, {"b": 2}]})
    run.say("foreach.open", node_id="l", collection="{{input.docs}}", item_variable="d", input_mapping={"v": "{{d.a}}"})

    assert b'[{"path":"input.docs","found":true,"fallback":false},' in run.revisions[-1].body
    assert run.revisions[-1].body.count(b'"path":"d.a"') == 2  # found in one item, missing in the other


def test_an_item_mapping_may_fall_back_to_something_that_is_awaited() -> None:
    run = started()
    run.say("activity.scheduled", activity_id="a", inputs={})
    fields: JsonObject = {"collection": [{"x": 1}, {}], "item_variable": "d"}
    assert run.say("foreach.open", node_id="l", input_mapping={"v": "{{d.x || a.n}}"}, **fields) == []

    (opened,) = run.output("a", {"n": 5})

    assert [item["inputs"] for item in opened.data["items"]] == [{"v": 1}, {"v": 5}]


@pytest.mark.parametrize("node_id", ["a>b[0]", "100%", "a/b", "x[1]"])
def test_a_loop_may_have_any_name_that_a_node_may_have(node_id: str) -> None:
    run = started()
    run.say("foreach.open", node_id=node_id, collection=["item"], item_variable="i")
    run.say("foreach.open", node_id="inner", collection=[2], item_variable="n", iteration=at((node_id, 0)))

    place = at((node_id, 0), ("inner", 0))
    assert run.ready({"i": "{{i}}", "n": "{{n}}"}, "b", iteration=place) == {"i": "item", "n": 2}
    run.output("b", {"x": 1}, iteration=at((node_id, 0)))
    (closed,) = run.say("foreach.close", node_id=node_id)
    assert closed.data["results"] == [{"x": 1}]


# -- branches


def test_a_joined_variable_may_be_named_and_awaited() -> None:
    run = started()
    run.say("activity.scheduled", activity_id="a", inputs={})
    run.say("parallel.join", node_id="j", branches=["a", "never"], output_variable="merged")
    run.say("activity.scheduled", activity_id="use", inputs={"m": "{{merged.a.n}}"}, after="merged.a")

    joined, ready = run.output("a", {"n": 1})

    assert (joined.data["results"], ready.data["inputs"]) == ({"a": {"n": 1}, "never": None}, {"m": 1})


def test_an_older_join_that_ends_later_does_not_replace_the_newer_one() -> None:
    run = started()
    run.say("activity.scheduled", activity_id="a", inputs={})
    run.say("parallel.join", node_id="j", branches=["a"])
    run.output("b", {"n": 2})
    run.say("parallel.join", node_id="j", branches=["b"])

    run.output("a", {"n": 1})

    assert run.value("parallel_results") == {"b": {"n": 2}}


def test_an_older_scratchpad_request_that_ends_later_does_not_replace_the_newer_answer() -> None:
    run = started()
    run.say("activity.scheduled", activity_id="a", inputs={})
    run.say("scratchpad.write", node_id="s", namespace="one", key="k", value="{{a.n}}")
    run.say("scratchpad.write", node_id="s", namespace="two", key="k", value="v")

    run.output("a", {"n": 1})

    assert run.value("s.namespace") == "two"
    assert run.ready({"m": "{{memory_manager.namespace}}", "v": "{{memory.one.k}}"}) == {"m": "two", "v": 1}


def test_a_condition_may_be_asked_as_text() -> None:
    run = started()
    run.output("a", {"n": 5})

    (answer,) = run.say("condition.evaluate", node_id="gate", condition="{{a.n}} > 4")

    assert (answer.data["result"], run.value("gate")) == (True, {"result": True, "done": True})


def test_what_a_condition_compared_is_limited() -> None:
    run = started(Limits(result_bytes=300))
    run.output("a", {"t": "x" * 250})

    events = run.say("condition.evaluate", node_id="gate", condition="{{a.t}} exists AND {{a.t}} exists")

    assert failed_code(events) == "result_too_large"


# -- memory


def test_a_part_of_an_address_may_come_from_a_number_and_not_from_nothing() -> None:
    run = started(input={"n": 7, "object": {}})

    (command,) = run.say(
        "memory.read", node_id="a", **{**ITEM, "key": "k{{input.n}}", "subject": {"kind": "p", "id": "{{input.n}}"}}
    )
    assert (command.data["key"], command.data["subject"]) == ("k7", {"kind": "p", "id": "7"})
    for wrong in (
        {"key": "{{input.none}}"},
        {"subject": {"kind": "p", "id": "{{input.none}}"}},
        {"key": "{{input.object}}"},
    ):
        assert failed_code(run.say("memory.read", node_id="b", **{**ITEM, **wrong})) == "address_invalid"


def test_an_address_that_cannot_be_is_answered() -> None:
    assert failed_code(started().say("memory.read", node_id="a", **{**ITEM, "key": "a\nb"})) == "address_invalid"


def test_a_subject_is_one_of_the_runs_or_nobody() -> None:
    run = started(subjects=[{"kind": "patient", "id": "p9"}])

    (command,) = run.say("memory.read", node_id="a", **{**ITEM, "subject": "patient"})
    (everybody,) = run.say("memory.read", node_id="b", **{**ITEM, "subject": "workflow-global"})

    assert command.data["subject"] == {"kind": "patient", "id": "p9"}
    assert everybody.data["subject"] == "workflow-global"
    assert failed_code(run.say("memory.read", node_id="c", **{**ITEM, "subject": "doctor"})) == "subject_unknown"


def test_a_run_uses_the_memory_of_its_own_workflow_only() -> None:
    run = started()

    (command,) = run.say("memory.read", node_id="a", **{**ITEM, "scope": "workflow", "workflow": "flow"})
    assert command.data["workflow"] == "flow"
    events = run.say("memory.read", node_id="b", **{**ITEM, "scope": "workflow", "workflow": "other", "key": "k"})
    assert failed_code(events) == "workflow_mismatch"


@pytest.mark.parametrize(
    ("version", "sent"),
    [("7", 7), (" 7 ", 7), ("²", "²"), ("9" * 5000, "9" * 5000), ("x", "x"), (True, True)],
)
def test_a_version_from_a_text_is_a_number_where_it_can_be_one(version: JsonValue, sent: JsonValue) -> None:
    run = started(input={"v": version})

    (command,) = run.say("memory.write", node_id="a", value=1, expected_version="{{input.v}}", **ITEM)

    assert command.data["expected_version"] == sent


def test_a_writer_is_named_and_says_what_it_saw() -> None:
    run = started(system={"user_id": "u1"})
    (read,) = run.say("memory.read", node_id="r", **ITEM)
    run.outcome(read, "memory.missing", version=0)

    (write,) = run.say("memory.write", node_id="w", value=1, **ITEM)

    assert write.data["writer"] == {"execution_id": "run-1", "workflow": "flow", "node_id": "w", "user_id": "u1"}
    assert write.data["read_version"] == 0


def test_a_conflict_tells_the_run_nothing_about_the_value_and_so_it_has_not_seen_that_version() -> None:
    run = started()
    (first,) = run.say("memory.write", node_id="w", value=1, expected_version=0, **ITEM)
    (answer,) = run.outcome(first, "memory.conflicted", expected_version=0, current_version=4)

    assert answer.data["outputs"] == {"conflict": True, "current_version": 4, "done": True}
    (second,) = run.say("memory.write", node_id="w", value=1, **ITEM)
    assert "read_version" not in second.data


def test_a_request_that_would_be_too_large_a_command_is_refused() -> None:
    run = started(Limits(result_bytes=500))

    assert failed_code(run.say("memory.write", node_id="w", value="x" * 600, **ITEM)) == "result_too_large"


def test_a_conversation_is_addressed_within_the_runs_workflow() -> None:
    run = started(input={"id": 12})

    (command,) = run.say("conversation.add", node_id="c", id="{{input.id}}", role="user", content="hello")

    assert (command.data["workflow"], command.data["id"]) == ("flow", "12")
    assert run.sent[-1].key == "default/workflow/flow/conversation/12/messages"
    assert failed_code(run.say("conversation.get", node_id="d", id="{{input.no}}")) == "address_invalid"


def test_an_answer_gives_its_ports_under_the_node() -> None:
    run = started()
    (read,) = run.say("memory.read", node_id="r", **ITEM)
    (answer,) = run.outcome(read, "memory.found", value=1, version=2, type="Integer", converted_from="Decimal")

    assert answer.data["outputs"] == {
        "value": 1,
        "version": 2,
        "type": "Integer",
        "converted_from": "Decimal",
        "done": True,
    }
    assert run.value("r.converted_from") == "Decimal"


def test_an_outcome_that_comes_twice_is_recorded_once() -> None:
    run = started()
    (read,) = run.say("memory.read", node_id="r", **ITEM)
    run.outcome(read, "memory.missing", version=0)

    assert run.outcome(read, "memory.missing", version=0) == []
    assert run.state.revision == 3


# -- activities


def test_an_activity_passes_its_child_on() -> None:
    (ready,) = started().say("activity.scheduled", activity_id="a", inputs={}, child_execution_id="c1")

    assert ready.data["child_execution_id"] == "c1"


def test_inputs_beyond_the_limit_fail_the_activity() -> None:
    run = started(Limits(result_bytes=100))

    assert failed_code(run.say("activity.scheduled", activity_id="a", inputs={"t": "x" * 200})) == "result_too_large"


def test_an_output_that_is_no_object_is_kept_as_it_is() -> None:
    run = started()
    run.output("a", [1, 2])

    assert run.ready({"x": "{{a.1}}", "p": "{{_prev.0}}"}) == {"x": 2, "p": 1}


def test_a_failure_forgets_the_output_of_the_time_before() -> None:
    run = started()
    run.output("a", {"n": 1})
    run.say("activity.failed", activity_id="a", error="e")

    assert run.value("a") is MISSING


def test_a_refused_output_in_a_loop_names_its_iteration() -> None:
    run = started()
    run.say("variables.set", variables={"x": 1}, iteration=at(("loop", 0)))

    (failed,) = run.output("a", {"n": 1}, output_mapping={"x.y": "{{a.n}}"}, iteration=at(("loop", 0)))

    assert failed.data["iteration"] == at(("loop", 0))


def test_requests_that_a_loop_body_and_its_surroundings_share_keep_apart() -> None:
    run = started()
    run.say("foreach.open", node_id="loop", collection=[1], item_variable="i")
    run.say("activity.scheduled", activity_id="a", inputs={})
    run.say("activity.scheduled", activity_id="a", inputs={}, iteration=at(("loop", 0)))

    run.output("a", {"n": "inner"}, iteration=at(("loop", 0)))

    assert [request.frame for request in run.state.requests] == [""]
    (closed,) = of_type(run.say("foreach.close", node_id="loop"), "foreach.closed")
    assert closed.data["results"] == [{"n": "inner"}]
