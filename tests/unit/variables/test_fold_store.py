"""The store: flat outputs, mappings, `_prev`, loops, parallel branches, children (seed 000)."""

from decimal import Decimal

from schemas.exact_json import Raw, dumps
from schemas.limits import Limits
from tests.support.runs import Run, of_type
from workers.logic.variables.references import MISSING
from workers.logic.variables.step import ForkSource


def test_an_output_is_stored_flat_under_the_activity_and_mirrored_to_prev() -> None:
    run = Run()
    run.start()
    run.output("extract", {"text": "t", "metadata": {"pages": 12}})

    assert run.value("extract") == {"text": "t", "metadata": {"pages": 12}}
    assert run.ready({"p": "{{_prev.metadata.pages}}"}) == {"p": 12}


def test_a_mapping_replaces_the_flat_storage_and_prev_still_mirrors_the_output() -> None:
    run = Run()
    run.start()
    run.output("agent", {"text": "t", "secret": 1}, output_mapping={"extracted": "{{agent.text}}"})

    assert run.variables() == {"extracted": "t"}
    assert run.ready({"p": "{{_prev.secret}}"}) == {"p": 1}


def test_a_dotted_target_keeps_its_siblings_and_nothing_unmapped_leaks() -> None:
    run = Run()
    run.start()
    run.say("variables.set", variables={"a": {"a1": 1}})
    run.output("step", {"a": {"a2": 2, "a3": 3}}, output_mapping={"a.a2": "{{step.a.a2}}"})

    assert run.value("a") == {"a1": 1, "a2": 2}


def test_two_steps_map_into_one_object() -> None:
    run = Run()
    run.start()
    run.output("one", {"p": 100}, output_mapping={"result.price": "{{one.p}}"})
    run.output("two", {"a": 1200}, output_mapping={"result.amount": "{{two.a}}"})

    assert run.variables() == {"result": {"price": 100, "amount": 1200}}


def test_a_whole_write_replaces_what_was_mapped_into_it() -> None:
    run = Run()
    run.start()
    run.output("one", {"p": 100}, output_mapping={"result.deep.price": "{{one.p}}"})
    run.say("variables.set", variables={"result": {"fresh": True}})

    assert run.variables() == {"result": {"fresh": True}}


def test_a_dotted_target_under_a_scalar_fails_the_node_and_writes_nothing() -> None:
    run = Run()
    run.start()
    run.say("variables.set", variables={"a": 1})

    (failed,) = run.output("step", {"x": 2}, output_mapping={"other": "{{step.x}}", "a.b": "{{step.x}}"})

    assert (failed.type, failed.data["code"]) == ("node.failed", "target_not_an_object")
    assert run.variables() == {"a": 1}


def test_numbers_come_out_as_they_went_in() -> None:
    run = Run()
    run.start()
    run.output("a", {"num": 23843037174560269, "price": Decimal("100.00")})

    bound = run.ready({"alone": "{{a.num}}", "text": "n={{a.num}}", "price": "{{a.price}}"})

    assert dumps(bound) == b'{"alone":23843037174560269,"text":"n=23843037174560269","price":100.00}'


def test_an_absent_field_is_null_and_the_fallback_is_used() -> None:
    run = Run()
    run.start()
    run.output("a", {"x": None})
    run.output("b", {"y": 2})

    (ready,) = run.say("activity.scheduled", activity_id="c", inputs={"n": "{{a.gone}}", "f": "{{a.x || b.y}}"})

    assert ready.data["inputs"] == {"n": None, "f": 2}
    assert ready.data["missing"] == ["a.gone"]


def test_variables_beside_an_output_are_set_at_the_top_level() -> None:
    run = Run()
    run.start()
    run.output("agent", {"text": "t"}, variables={"risk": "low"})

    assert run.variables() == {"agent": {"text": "t"}, "risk": "low"}


def test_a_reserved_name_is_refused() -> None:
    run = Run()
    run.start()

    assert run.refuse("activity.completed", activity_id="system", output={}) == "reserved_name"


def test_an_output_that_is_too_large_fails_its_node_and_is_kept_as_a_dead_letter() -> None:
    run = Run(limits=Limits(output_bytes=50))
    run.start()
    run.say("activity.scheduled", activity_id="big", inputs={})
    run.say("activity.scheduled", activity_id="next", inputs={"x": "{{big.text}}"})

    failed, ready = run.output("big", {"text": "x" * 100})

    assert (failed.type, failed.data["code"]) == ("node.failed", "output_too_large")
    assert ready.data["inputs"] == {"x": None}
    dead_letter = run.revisions[-1].dead_letter
    assert dead_letter is not None
    assert dead_letter[0] == "output_too_large"


def test_the_store_has_a_limit_and_counts_what_is_replaced() -> None:
    run = Run(limits=Limits(store_bytes=300))
    run.start()
    for _ in range(5):
        run.output("same", {"text": "x" * 150})
    assert run.value("same.text") == "x" * 150

    (failed,) = run.output("more", {"text": "x" * 150})

    assert failed.data["code"] == "store_too_large"
    assert run.value("more") is MISSING


def test_parallel_results_come_in_declared_order_with_null_for_the_missing() -> None:
    run = Run()
    run.start()
    for branch in ("tech", "fin", "legal"):
        run.say("activity.scheduled", activity_id=branch, inputs={})
    assert run.say("parallel.join", node_id="join", branches=["tech", "fin", "legal"]) == []
    run.output("legal", {"score": 3})
    run.say("activity.failed", activity_id="fin", error="boom")

    (joined,) = run.output("tech", {"score": 1})

    assert joined.type == "parallel.joined"
    assert list(joined.data["results"].items()) == [("tech", {"score": 1}), ("fin", None), ("legal", {"score": 3})]
    assert run.value("parallel_results.legal.score") == 3


def test_a_variable_of_one_branch_stays_whatever_finishes_last() -> None:
    run = Run()
    run.start()
    run.output("one", {"done": True}, variables={"x": 1})
    run.output("two", {"done": True})
    run.output("three", {"done": True})

    assert run.value("x") == 1


def iteration(index: int, node_id: str = "loop") -> list[dict[str, object]]:
    return [{"node_id": node_id, "index": index}]


def test_foreach_results_come_by_index_whatever_finishes_first() -> None:
    run = Run()
    run.start(input={"docs": [65, 66, 67]})
    (opened,) = run.say(
        "foreach.open",
        node_id="loop",
        collection="{{input.docs}}",
        item_variable="document",
        input_mapping={"doc": "{{document}}", "all": "{{input.docs.0}}"},
    )
    assert opened.data["items"][1] == {"index": 1, "item": 66, "inputs": {"doc": 66, "all": 65}}
    for index in (2, 0, 1):
        assert run.ready({"d": "{{document}}"}, "body", iteration=iteration(index)) == {"d": 65 + index}
        run.output("body", {"item": 65 + index}, iteration=iteration(index))

    (closed,) = run.say("foreach.close", node_id="loop")

    assert closed.data["results"] == [{"item": 65}, {"item": 66}, {"item": 67}]
    assert run.value("document") is MISSING
    assert run.value("body") is MISSING
    assert run.value("loop.results.2.item") == 67


def test_foreach_close_waits_for_the_bodies_and_nulls_the_failed() -> None:
    run = Run()
    run.start()
    run.say("foreach.open", node_id="loop", collection=[1, 2], item_variable="n")
    for index in (0, 1):
        run.say("activity.scheduled", activity_id="body", inputs={}, iteration=iteration(index))
    assert run.say("foreach.close", node_id="loop") == []
    run.say("activity.failed", activity_id="body", error="x", iteration=iteration(1))

    events = run.output("body", {"v": 1}, iteration=iteration(0))

    (closed,) = of_type(events, "foreach.closed")
    assert closed.data["results"] == [{"v": 1}, None]


def test_a_body_of_several_activities_gives_an_object_by_activity() -> None:
    run = Run()
    run.start()
    run.say("foreach.open", node_id="loop", collection=[1], item_variable="n")
    run.output("a", {"x": 1}, iteration=iteration(0))
    run.output("b", {"y": 2}, iteration=iteration(0))

    (closed,) = run.say("foreach.close", node_id="loop")

    assert closed.data["results"] == [{"a": {"x": 1}, "b": {"y": 2}}]


def test_nested_loops_look_outward() -> None:
    run = Run()
    run.start()
    run.say("foreach.open", node_id="outer", collection=["a"], item_variable="o")
    run.say("foreach.open", node_id="inner", collection=[1, 2], item_variable="i", iteration=iteration(0, "outer"))
    place = [*iteration(0, "outer"), *iteration(1, "inner")]

    assert run.ready({"o": "{{o}}", "i": "{{i}}"}, "body", iteration=place) == {"o": "a", "i": 2}


def test_a_collection_that_is_no_list_fails_the_node() -> None:
    run = Run()
    run.start()

    (failed,) = run.say("foreach.open", node_id="loop", collection="{{input.none}}", item_variable="n")

    assert (failed.type, failed.data["code"]) == ("node.failed", "collection_invalid")


def test_a_condition_is_answered_with_what_it_compared() -> None:
    run = Run()
    run.start()
    run.output("risk", {"score": Decimal("0.9")})

    (answer,) = run.say(
        "condition.evaluate",
        node_id="gate",
        branches=[
            {
                "name": "high",
                "condition": {"variable": "risk.score", "operator": "greater_than", "value": Decimal("0.8")},
            },
            {"name": "low"},
        ],
    )

    assert (answer.type, answer.data["branch"]) == ("condition.evaluated", "high")
    assert answer.data["operands"][0]["left"]["value"] == Decimal("0.9")
    assert run.value("gate.branch") == "high"


def test_a_condition_with_an_error_fails_its_node() -> None:
    run = Run()
    run.start()

    (failed,) = run.say("condition.evaluate", node_id="gate", condition="{{a}} >")

    assert (failed.type, failed.data["code"]) == ("node.failed", "condition_invalid")


def test_a_child_gives_its_mapped_outputs_to_the_parents_node() -> None:
    parent, child = Run("parent"), Run("child")
    parent.start()
    parent.say("activity.scheduled", activity_id="sub", inputs={}, child_execution_id="child")
    child.start(
        input={"x": 1},
        parent={"execution_id": "parent", "node_id": "sub"},
        output_mapping={"verified": "{{check.ok}}"},
    )
    child.output("check", {"ok": True, "internal": 1})
    finalized, told = child.say("execution.completed")
    assert (finalized.type, told.type, told.subject) == ("execution.finalized", "child.completed", "parent")

    parent.apply(told)

    assert parent.value("sub") == {"verified": True}
    assert parent.value("check") is MISSING


def test_a_child_of_an_unknown_parent_is_refused() -> None:
    run = Run("parent")

    code = run.refuse("child.completed", node_id="sub", child_execution_id="c", status="completed", outputs={})

    assert code == "unknown_parent"


def test_a_parent_that_ended_first_gets_a_late_revision() -> None:
    run = Run("parent")
    run.start()
    run.say("execution.failed", error="x")

    (finalized,) = run.say(
        "child.completed", node_id="sub", child_execution_id="c", status="completed", outputs={"a": 1}
    )

    assert finalized.data["late"] is True
    assert run.value("sub.a") == 1


def test_a_contract_is_checked_at_the_start_and_at_the_end() -> None:
    contract = {
        "inputs": [{"name": "url", "type": "string", "required": True}],
        "outputs": [{"name": "verified", "type": "boolean", "required": True}],
    }
    without_input = Run("one")
    (finalized,) = without_input.start(contract=contract)
    assert finalized.data["error"]["code"] == "contract_violated"

    without_output = Run("two")
    without_output.start(contract=contract, input={"url": "u"})
    (finalized,) = without_output.say("execution.completed", output={"verified": "yes"})
    assert (finalized.data["status"], finalized.data["error"]["code"]) == ("failed", "contract_violated")


def test_a_fork_begins_with_the_sources_variables_and_none_of_its_requests() -> None:
    source = Run("source")
    source.start(input={"n": 1})
    source.output("a", {"x": 1})
    source.say("activity.scheduled", activity_id="open", inputs={})
    at_three = dict(source.entries)
    source.output("b", {"y": 2})

    fork = Run("fork", fork=ForkSource(at_three, found=True))
    fork.start(forked_from={"execution_id": "source", "revision": 3}, input={"n": 1})

    assert fork.variables() == {"a": {"x": 1}}
    assert len(fork.state.requests) == 0
    assert fork.state.store_bytes == sum(len(data) for entry, data in fork.entries.items() if entry.startswith("v/"))


def test_text_from_data_is_never_expanded_again() -> None:
    run = Run()
    run.start(input={"note": "{{system.execution_id}}"})

    assert run.ready({"n": "{{input.note}}", "t": "say {{input.note}}"}) == {
        "n": "{{system.execution_id}}",
        "t": "say {{system.execution_id}}",
    }


def test_nul_characters_are_kept() -> None:
    run = Run()
    run.start()
    run.output("a", {"t": "\x00"})

    assert run.value("a.t") == "\x00"


def test_a_change_holds_raw_json() -> None:
    run = Run()
    run.start()
    run.output("a", {"price": Decimal("1.50")})

    assert dumps({"kept": Raw(run.entries["v/a"])}) == b'{"kept":{"price":1.50}}'
