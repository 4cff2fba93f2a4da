"""The store: nothing half-written, nothing that cannot be read back, one size, one order, one tenant."""

import pytest

from schemas.exact_json import JsonObject, JsonValue, dumps
from schemas.limits import DEFAULT_LIMITS, Limits
from tests.support.runs import Run, of_type
from workers.logic.variables import entries
from workers.logic.variables.references import MISSING
from workers.variables.rows import apply_changes, decode_changes, encode_changes


def started(limits: Limits = DEFAULT_LIMITS, **data: object) -> Run:
    run = Run(limits=limits)
    run.start(**data)
    return run


def nested(levels: int) -> JsonValue:
    value: JsonValue = 1
    for _ in range(levels):
        value = {"a": value}
    return value


# -- nothing half-written


def test_variables_that_do_not_fit_together_are_not_set_at_all() -> None:
    run = started(Limits(store_bytes=400))

    assert run.refuse("variables.set", variables={"a": "x" * 200, "b": "x" * 200}) == "store_too_large"
    assert run.variables() == {}


def test_variables_that_waited_and_do_not_fit_are_not_set_at_all() -> None:
    run = started(Limits(store_bytes=400))
    run.say("activity.scheduled", activity_id="a", inputs={})
    run.say("variables.set", variables={"x": "{{a.n}}", "y": "x" * 380})

    (failed,) = run.output("a", {"n": 1})

    assert (failed.type, failed.data["code"], failed.data["request_id"]) == (
        "node.failed",
        "store_too_large",
        "run-1-3",
    )
    assert run.variables() == {"a": {"n": 1}}


def test_a_request_that_fails_takes_back_its_own_writes_and_not_those_before_it_in_the_event() -> None:
    run = started(Limits(store_bytes=400))
    run.say("variables.set", variables={"x.part": 0})
    run.say("activity.scheduled", activity_id="a", inputs={})
    run.say("variables.set", variables={"x.part": "{{a.n}}"})
    run.say("variables.set", variables={"x": "{{a.n}}", "y": "y" * 390})

    (failed,) = run.output("a", {"n": 1})

    assert failed.data["code"] == "store_too_large"
    assert run.variables() == {"a": {"n": 1}, "x": {"part": 1}}
    run.say("activity.failed", activity_id="x", error="e")
    assert run.variables() == {"a": {"n": 1}}


def test_a_loop_whose_items_do_not_fit_opens_no_iteration() -> None:
    run = started(Limits(store_bytes=200))

    (failed,) = run.say("foreach.open", node_id="loop", collection=["x" * 60] * 4, item_variable="i")

    assert failed.data["code"] == "store_too_large"
    assert not [entry for entry in run.entries if entry.startswith(("w/", "g/"))]


def test_a_scratchpad_value_that_fits_only_without_the_node_is_not_kept() -> None:
    run = started(Limits(store_bytes=350))

    (failed,) = run.say("scratchpad.append", node_id="pad", key="k", value="x" * 150)

    assert failed.data["code"] == "store_too_large"
    assert not [entry for entry in run.entries if entry.startswith(("k/", "y"))]


def test_an_answer_that_does_not_fit_fails_its_node_and_the_version_counts_as_seen() -> None:
    run = started(Limits(store_bytes=300))
    item: JsonObject = {"scope": "shared", "subject": {"kind": "k", "id": "1"}, "key": "x", "type": "String"}
    (command,) = run.say("memory.read", node_id="seen", **item)

    (failed,) = run.outcome(command, "memory.found", value="x" * 300, version=4, type="String")

    assert (failed.type, failed.data["code"]) == ("node.failed", "store_too_large")
    (write,) = run.say("memory.write", node_id="mark", value="v", **item)
    assert write.data["read_version"] == 4


def test_replacing_a_variable_with_many_parts_needs_only_the_difference() -> None:
    run = started(Limits(store_bytes=500))
    run.say("variables.set", variables={f"big.part{number}": "x" * 60 for number in range(6)})

    run.say("variables.set", variables={"big": "y" * 300})

    assert run.value("big") == "y" * 300


# -- limits


def test_what_one_event_sets_is_limited() -> None:
    run = started(Limits(result_bytes=100))

    assert run.refuse("variables.set", variables={"a": "x" * 60, "b": "x" * 60}) == "result_too_large"


def test_a_value_that_would_grow_too_deep_to_be_read_back_is_refused() -> None:
    run = started()
    for _ in range(DEFAULT_LIMITS.value_levels + 1):
        said = run.output("a", {}, output_mapping={"x": {"inner": "{{x}}"}})
        if said:
            break

    assert [(event.type, event.data["code"]) for event in said] == [("node.failed", "too_deep")]
    assert run.value("x.inner.inner") is not MISSING
    assert run.revisions[-1].dead_letter is not None


def test_the_deepest_event_that_is_accepted_can_be_stored_and_read_back() -> None:
    run = started()
    run.say("activity.scheduled", activity_id="a", inputs={})
    run.say("activity.scheduled", activity_id="b", inputs={"deep": nested(61), "x": "{{a.n}}"})

    kept: dict[str, bytes] = {}
    for revision in run.revisions:
        apply_changes(kept, decode_changes(encode_changes(revision.changes)))

    assert kept == run.entries


@pytest.mark.parametrize("event_type", ["execution.completed", "execution.failed"])
def test_an_end_that_is_nested_too_deep_is_refused_or_fails(event_type: str) -> None:
    run = started()
    if event_type == "execution.failed":
        assert run.refuse(event_type, error=nested(61)) == "too_deep"
    else:
        (finalized,) = run.say(event_type, output=nested(61))
        assert (finalized.data["status"], finalized.data["error"]["code"]) == ("failed", "too_deep")


def test_more_references_than_can_be_recorded_are_refused() -> None:
    run = started(Limits(result_bytes=2000))

    (failed,) = run.say("activity.scheduled", activity_id="a", inputs={"x": [f"{{{{n{i}}}}}" for i in range(50)]})

    assert failed.data["code"] == "result_too_large"


def test_the_final_variables_give_way_to_their_digest_when_they_are_large() -> None:
    run = started(Limits(final_variables_bytes=50))
    run.output("a", {"text": "x" * 100})

    (finalized,) = run.say("execution.completed")

    assert "variables" not in finalized.data
    assert finalized.data["variables_bytes"] == len(dumps(run.state.all_variables()))


# -- names


@pytest.mark.parametrize("target", ["system.user_id", "input", "a..b", ""])
def test_a_target_that_cannot_be_called_so_fails_the_node_and_ends_it(target: str) -> None:
    run = started()
    run.say("activity.scheduled", activity_id="a", inputs={})

    (failed,) = run.output("a", {"x": 1}, output_mapping={target: "{{a.x}}"})

    assert failed.data["code"] in ("reserved_name", "name_invalid")
    assert len(run.state.requests) == 0


def test_variables_with_a_reserved_name_are_refused_even_while_they_would_wait() -> None:
    run = started()
    run.say("activity.scheduled", activity_id="a", inputs={})

    assert run.refuse("variables.set", variables={"memory": "{{a.x}}"}) == "reserved_name"


def test_a_child_cannot_write_a_reserved_scope_of_its_parent() -> None:
    run = started(input={"kept": True})

    code = run.refuse("child.completed", node_id="input", child_execution_id="c", status="completed", outputs={})

    assert code == "reserved_name"


def test_a_nodes_own_variables_are_data_and_never_expanded() -> None:
    run = started()
    run.output("agent", {"t": 1}, variables={"note": "{{system.execution_id}} {{"})

    assert run.value("note") == "{{system.execution_id}} {{"


# -- reading


def test_a_part_of_a_mapped_object_reads_the_newest_write_at_above_or_below_it() -> None:
    run = started()
    run.say("variables.set", variables={"a": {"b": {"c": 1, "d": 2}, "n": None}})
    run.say("variables.set", variables={"a.b.c": 10, "a.n.x": 11})
    run.say("variables.set", variables={"a.b.e": {"f": 12}})

    paths = ("a.b.c", "a.b.d", "a.b.e.f", "a.b.e.g", "a.n.x", "a.b", "a")
    assert [run.value(path) for path in paths] == [
        10,
        2,
        12,
        MISSING,
        11,
        {"c": 10, "d": 2, "e": {"f": 12}},
        {"b": {"c": 10, "d": 2, "e": {"f": 12}}, "n": {"x": 11}},
    ]


def test_a_mapping_below_an_overlaid_scalar_is_refused() -> None:
    run = started()
    run.say("variables.set", variables={"a.b": 1})

    assert run.refuse("variables.set", variables={"a.b.c": 2}) == "target_not_an_object"
    assert run.refuse("variables.set", variables={"a.b.c.d": 2}) == "target_not_an_object"


def test_the_aliases_of_the_scratchpad_reach_the_same_values() -> None:
    run = started(event={"body": "e"})
    run.output("agent", {"parsed": {"kept": 1}, "text": "t"})
    run.say("variables.set", variables={"customer": {"name": "n"}})
    run.say("scratchpad.write", node_id="w", namespace="ns", key="k", value=5)

    assert run.ready(
        {
            "state": "{{state.customer.name}}",
            "output": "{{outputs.agent.parsed.text}}",
            "raw": "{{outputs.agent.text}}",
            "memory": "{{memory.ns}}",
            "none": "{{memory.other}}",
            "roots": ["{{memory}}", "{{outputs}}", "{{state}}"],
            "event": "{{event.body}}",
        }
    ) == {
        "state": "n",
        "output": "t",
        "raw": "t",
        "memory": {"k": 5},
        "none": None,
        "roots": [None, None, None],
        "event": "e",
    }


def test_a_summary_is_passed_on_as_text_and_its_details_as_the_parsed_output() -> None:
    run = started()
    run.say("scratchpad.append", node_id="a", key="k", value="one")
    run.say("scratchpad.summarize", node_id="s", key="k", summary_key="short", max_chars=4, max_items=1)

    assert run.ready({"last": "{{last_output}}", "cut": "{{last_output_parsed.truncated}}"}) == {
        "last": "1. o",
        "cut": True,
    }


# -- the same bytes


def test_objects_come_in_the_order_of_their_names_whatever_was_written_first() -> None:
    one, two = started(), started()
    for run, names in ((one, "abc"), (two, "cab")):
        for name in names:
            run.say("variables.set", variables={name: 1})
            run.say("scratchpad.write", node_id="w", key=name, value=1)
    for run in (one, two):
        run.say("scratchpad.summarize", node_id="s")

    assert one.value("s.value") == two.value("s.value") == '{"a":1,"b":1,"c":1}'
    assert list(one.variables()) == list(two.variables())


def test_nothing_is_kept_of_a_request_that_one_event_asks_and_answers() -> None:
    run = started()
    run.say("condition.evaluate", node_id="gate", condition="1 == 1")

    assert not [entry for entry in run.revisions[-1].changes if entry.startswith((entries.REQUEST, entries.ANSWERED))]


def test_a_refused_event_changes_nothing_that_a_later_one_could_see() -> None:
    run = started()
    run.say("activity.scheduled", activity_id="a", inputs={})
    run.say("activity.scheduled", activity_id="b", inputs={"x": "{{a.n}}", "y": "{{c.n}}"})
    before = run.state
    run.refuse("execution.started", workflow={"name": "again"})

    assert [request.fields() for request in run.state.requests] == [request.fields() for request in before.requests]
    assert of_type(run.output("a", {"n": 1}), "activity.ready")[0].data["inputs"] == {"x": 1, "y": None}
