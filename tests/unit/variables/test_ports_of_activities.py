"""The ports of an activity are what its output gave, wherever a mapping put it, and whoever asks when."""

import pytest

from schemas.exact_json import JsonObject
from tests.support.runs import Run

OUTPUT: JsonObject = {"score": 7, "note": None, "deep": {"x": 1}}
MAPPING: JsonObject = {"risk.score": "{{screening.score}}"}


def started() -> Run:
    run = Run()
    run.start()
    return run


def skipped(run: Run, after: str, *, before: bool, scheduled: bool, mapped: bool) -> bool:
    """Ask for something `after` the activity, before or behind its output; tell whether it was skipped."""
    if scheduled:
        run.say("activity.scheduled", activity_id="screening", inputs={})
    ask = ("activity.scheduled", {"activity_id": "next", "inputs": {}, "after": after})
    answers = run.say(ask[0], **ask[1]) if before else []
    answers += run.output("screening", OUTPUT, **({"output_mapping": MAPPING} if mapped else {}))
    answers += [] if before else run.say(ask[0], **ask[1])
    return [answer.type for answer in answers] == ["node.skipped"]


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize(("before", "scheduled"), [(True, True), (False, True), (False, False)])
@pytest.mark.parametrize(
    ("port", "given"),
    [("score", True), ("deep.x", True), ("done", True), ("note", False), ("nothing", False), ("nothing.x", False)],
)
def test_a_port_is_given_by_an_output_with_that_field(
    *, port: str, given: bool, before: bool, scheduled: bool, mapped: bool
) -> None:
    assert skipped(started(), f"screening.{port}", before=before, scheduled=scheduled, mapped=mapped) is not given


def test_an_output_that_is_mapped_in_a_loop_has_ports_too() -> None:
    run = started()
    run.say("foreach.open", node_id="l", collection=[1], item_variable="item")
    loop = [{"node_id": "l", "index": 0}]
    run.output("screening", OUTPUT, output_mapping=MAPPING, iteration=loop)

    (ready,) = run.say("activity.scheduled", activity_id="n", inputs={}, after="screening.score", iteration=loop)
    (skip,) = run.say("activity.scheduled", activity_id="m", inputs={}, after="screening.other", iteration=loop)

    assert (ready.type, skip.type) == ("activity.ready", "node.skipped")


def test_an_output_that_is_not_mapped_any_more_is_found_in_the_store_again() -> None:
    run = started()
    run.output("screening", OUTPUT, output_mapping=MAPPING)
    run.output("screening", {"other": 1})

    (skip,) = run.say("activity.scheduled", activity_id="n", inputs={}, after="screening.score")
    (ready,) = run.say("activity.scheduled", activity_id="m", inputs={}, after="screening.other")

    assert (skip.type, ready.type) == ("node.skipped", "activity.ready")


def test_without_after_nobody_waits_for_a_name_that_a_mapping_may_set() -> None:
    run = started()
    run.say("activity.scheduled", activity_id="screening", inputs={})

    (ready,) = run.say("activity.scheduled", activity_id="n", inputs={"score": "{{risk.score}}"})

    assert ready.data["inputs"] == {"score": None}
