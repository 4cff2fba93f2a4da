"""Inputs that broke other systems: what the variable store makes of them. The addresses are where they were reported."""

import pytest

from schemas.errors import Rejection
from schemas.exact_json import JsonObject, dumps
from tests.support.runs import Run
from topics.codec import decode, encode
from workers.logic.variables.step import ForkSource


def started(**data: object) -> Run:
    run = Run()
    run.start(**data)
    return run


def body_at(index: int) -> list[JsonObject]:
    return [{"node_id": "loop", "index": index}]


@pytest.mark.parametrize("finishing", [(2, 0, 1), (0, 1, 2), (1, 2, 0)])
def test_foreach_results_stand_at_their_items_indexes_whatever_finishes_first(finishing: tuple[int, ...]) -> None:
    """camunda#4860, camunda#11476."""
    run = started(input={"numbers": [65, 66, 67]})
    run.say("variables.set", variables={"inherited": "outside"})
    run.say("foreach.open", node_id="loop", collection="{{input.numbers}}", item_variable="number")
    for index in finishing:
        (ready,) = run.say(
            "activity.scheduled", activity_id="body", inputs={"n": "{{number}}"}, iteration=body_at(index)
        )
        run.output("body", ready.data["inputs"]["n"], iteration=body_at(index))

    (closed,) = run.say("foreach.close", node_id="loop")

    assert closed.data["results"] == [65, 66, 67]
    assert run.variables() == {"inherited": "outside", "loop": {"results": [65, 66, 67], "done": True}}


@pytest.mark.parametrize("finishing", [("one", "two", "three"), ("three", "two", "one"), ("two", "one", "three")])
def test_a_variable_that_one_parallel_branch_sets_stays_whatever_finishes_last(finishing: tuple[str, ...]) -> None:
    """dify#29989."""
    run = started()
    for branch in ("one", "two", "three"):
        run.say("activity.scheduled", activity_id=branch, inputs={})
    run.say("parallel.join", node_id="join", branches=["one", "two", "three"])
    for branch in finishing:
        run.output(branch, {"branch": branch}, variables={"x": 1} if branch == "one" else None)

    assert run.value("x") == 1
    assert list(run.value("parallel_results")) == ["one", "two", "three"]


def test_a_mapping_into_an_object_keeps_its_other_fields_and_takes_nothing_unmapped() -> None:
    """camunda#35251."""
    run = started()
    run.say("variables.set", variables={"a": {"a1": 1}})

    run.output("step", {"a": {"a2": 2, "a3": 3}}, output_mapping={"a.a2": "{{step.a.a2}}"})

    assert run.variables() == {"a": {"a1": 1, "a2": 2}}


def test_two_steps_that_map_into_one_object_both_stay() -> None:
    """camunda#3621."""
    run = started()
    run.output("one", {"price": 100}, output_mapping={"result.price": "{{one.price}}"})
    run.output("two", {"amount": 1200}, output_mapping={"result.amount": "{{two.amount}}"})

    assert run.variables() == {"result": {"price": 100, "amount": 1200}}


def test_a_number_beyond_a_double_comes_out_as_it_went_in() -> None:
    """digdag#916."""
    run = started()
    event = decode(encode(run.event("activity.completed", {"activity_id": "a", "output": {"num": 23843037174560269}})))
    run.apply(event)

    inputs = run.ready({"alone": "{{a.num}}", "text": "number {{a.num}}"})

    assert dumps(inputs) == b'{"alone":23843037174560269,"text":"number 23843037174560269"}'


def test_a_nul_character_is_stored_and_read_back_and_the_next_event_applied() -> None:
    """kestra#10326."""
    run = started()
    record = encode(run.event("activity.completed", {"activity_id": "a", "output": {"text": "x\x00y"}}))
    assert rb"\u0000" in record
    run.apply(decode(record))
    run.output("b", {"n": 1})

    assert run.ready({"t": "{{a.text}}", "n": "{{b.n}}"}) == {"t": "x\x00y", "n": 1}


def test_an_unpaired_surrogate_is_refused_with_a_code() -> None:
    """kestra#14806."""
    record = encode(started().event("activity.completed", {"activity_id": "a", "output": {"text": "PLACE"}}))

    with pytest.raises(Rejection) as refused:
        decode(record.replace(b"PLACE", rb"\ud835"))

    assert refused.value.reason == "malformed"


def test_a_fork_holds_exactly_what_the_source_held_at_its_revision() -> None:
    """langgraph#8443."""
    source = started(input={"n": 1})
    source.output("a", {"v": 1})
    source.say("variables.set", variables={"x.y": 1})
    at_three = dict(source.entries)
    source.output("a", {"v": 2})
    source.say("variables.set", variables={"x.z": 2})
    assert source.state.revision == 5

    fork = Run("fork", fork=ForkSource(at_three, found=True))
    fork.start(forked_from={"execution_id": "run-1", "revision": 3})

    assert fork.variables() == {"a": {"v": 1}, "x": {"y": 1}}
    assert fork.value("input.n") == 1


def test_a_field_that_is_absent_is_null_and_no_error() -> None:
    """sim#2798."""
    run = started()
    run.output("a", {"there": 1})

    (ready,) = run.say(
        "activity.scheduled", activity_id="b", inputs={"x": "{{a.absent}}", "t": "<{{a.absent.deeper}}>"}
    )

    assert ready.data["inputs"] == {"x": None, "t": "<>"}
    assert ready.data["missing"] == ["a.absent", "a.absent.deeper"]
