"""Conditions in their structured form, and how they are decided."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue, dumps
from tests.support.json_values import json_values, lookup_in, reason_of
from workers.logic.variables.comparisons import Operator
from workers.logic.variables.condition_tree import Comparison, Condition, Group, Not, Side
from workers.logic.variables.conditions import (
    Choice,
    Evaluation,
    choose_branch,
    evaluate,
    parse_branches,
    parse_condition,
    references_of,
)
from workers.logic.variables.references import Read
from workers.logic.variables.templates import parse_template

STORE: JsonObject = {"risk": {"score": Decimal("0.9")}, "kind": "text", "x": "abc", "n": 5, "big": "x" * 40_000}


def decide(condition: JsonValue) -> Evaluation:
    return evaluate(parse_condition(condition), lookup_in(STORE))


def choose(*branches: JsonValue) -> Choice:
    return choose_branch(parse_branches(list(branches)), lookup_in(STORE))


@pytest.mark.parametrize(
    "condition",
    [
        {"variable": "risk.score", "operator": "greater_than", "value": Decimal("0.8")},
        {"variable": " {{ risk.score }} ", "operator": ">", "value": "0.8"},
        {"variable": "absent || risk.score", "operator": "LESS_THAN", "right": "{{n}}"},
        {"left": "{{n}}", "operator": "<=", "right": 5},
        {"left": "{{x}}-{{n}}", "operator": "equals", "value": "abc-5"},
        {"variable": "n", "operator": "exists"},
        {"variable": "n", "operator": "exists", "value": None},
        {"variable": "n", "operator": "is_not_empty", "right": ""},
        {"variable": "absent", "operator": "equals", "value": None},
        {"all": [{"variable": "n", "operator": "in", "value": [1, "{{n}}"]}, "{{x}} starts_with 'a'"]},
        {"any": ["{{x}} == 'no'", {"not": "{{x}} == 'no'"}]},
    ],
)
def test_every_form_is_understood(condition: JsonValue) -> None:
    assert decide(condition).result


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (True, "must be an expression text"),
        ({}, "these keys are none of them: (none)"),
        ({"and": []}, "these keys are none of them: and"),
        ({"all": ["{{a}} exists"], "any": []}, "these keys are none of them: all, any"),
        ({"all": []}, "the condition: 'all' must be a list of at least one condition"),
        ({"any": {"not": "x"}}, "'any' must be a list of at least one condition"),
        ({"not": []}, "the condition, not: must be an expression text"),
        ({"any": ["{{a}} exists", {"all": [5]}]}, "the condition, any.1, all.0: must be"),
        ({"variable": "a", "operator": "is"}, "unknown operator 'is'; known are exists"),
        ({"variable": "a", "operator": ["equals"], "value": 1}, "unknown operator ['equals']"),
        ({"variable": "a", "operator": "equals"}, "equals needs 'value' or 'right'"),
        ({"variable": "a", "operator": "equals", "value": 1, "right": 1}, "has both 'value' and 'right'"),
        ({"variable": "a", "left": "a", "operator": "exists"}, "needs either 'variable'"),
        ({"operator": "exists"}, "needs either 'variable'"),
        ({"variable": 5, "operator": "exists"}, "'variable' must be a path"),
        ({"variable": "a", "operator": "exists", "value": False}, "exists looks at one value only; leave 'value' out"),
        ({"variable": "a", "operator": "equals", "value": 1, "note": ""}, "unknown key 'note'"),
    ],
)
def test_what_is_no_condition_is_refused_with_its_place(condition: JsonValue, message: str) -> None:
    with pytest.raises(Rejection) as error:
        parse_condition(condition)

    assert error.value.reason == "condition_invalid"
    assert message in error.value.message


@pytest.mark.parametrize(
    "condition",
    [
        {"variable": "a..b", "operator": "exists"},
        {"left": "{{", "operator": "exists"},
        {"variable": "a", "operator": "equals", "value": ["{{}}"]},
    ],
)
def test_a_wrong_reference_is_refused(condition: JsonValue) -> None:
    assert reason_of(parse_condition, condition) == "template_invalid"


def test_a_long_text_is_read_like_a_short_one() -> None:
    assert decide(f"{{{{n}}}} in ['{'x' * 3000}', 5]").result


def test_every_comparison_is_recorded_with_its_values() -> None:
    evaluation = decide({"all": ["{{risk.score}} > 0.8", {"variable": "absent || n", "operator": "exists"}]})

    assert [operand.as_json() for operand in evaluation.operands] == [
        {
            "left": {"template": "{{risk.score}}", "value": Decimal("0.9")},
            "operator": "greater_than",
            "right": {"value": Decimal("0.8")},
            "result": True,
        },
        {"left": {"template": "{{absent || n}}", "value": 5}, "operator": "exists", "result": True},
    ]
    assert evaluation.reads == (Read("risk.score", found=True, fallback=False), Read("n", found=True, fallback=True))


def test_a_large_value_is_recorded_by_size_and_digest() -> None:
    (operand,) = decide("{{big}} contains 'x'").operands

    left = operand.as_json()["left"]
    assert isinstance(left, dict)
    assert (left["value_bytes"], len(str(left["value_sha256"])), "value" in left) == (40_002, 64, False)
    assert operand.as_json(max_value_bytes=50_000)["left"] == {"template": "{{big}}", "value": STORE["big"]}


def test_a_guard_protects_what_follows_and_all_values_are_recorded() -> None:
    guarded = decide("{{kind}} == 'number' AND ({{x}} > 5 OR NOT {{n}} > 1)")

    assert not guarded.result
    assert [operand.result for operand in guarded.operands] == [False, None, None]
    assert [operand.left.value for operand in guarded.operands] == ["text", "abc", 5]
    assert decide("{{kind}} == 'text' OR {{x}} > 5").result


def test_an_unguarded_senseless_comparison_is_refused() -> None:
    assert reason_of(decide, "{{x}} > 5") == "comparison_invalid"
    assert reason_of(decide, {"any": ["{{x}} > 5", "{{n}} == 5"]}) == "comparison_invalid"


def test_the_first_branch_that_holds_is_taken_and_later_ones_are_not_looked_at() -> None:
    choice = choose(
        {"name": "low", "condition": "{{n}} < 3"},
        {"name": "middle", "condition": {"variable": "n", "operator": "<", "value": 10}},
        {"name": "high", "condition": "{{x}} > 5"},
    )

    assert choice.branch == "middle"
    assert [operand.result for operand in choice.operands] == [False, True]
    assert choice.reads == (Read("n", found=True, fallback=False),)


def test_the_default_is_taken_when_none_holds_wherever_it_stands() -> None:
    assert choose({"name": "else"}, {"name": "low", "condition": "{{n}} < 3"}).branch == "else"
    assert choose({"name": "low", "condition": "{{n}} < 3"}, {"name": "else", "condition": None}).branch == "else"
    assert choose({"name": "else"}, {"name": "five", "condition": "{{n}} == 5"}).branch == "five"


def test_without_a_default_no_branch_may_be_taken() -> None:
    assert choose({"name": "low", "condition": "{{n}} < 3"}).branch is None


@pytest.mark.parametrize(
    ("branches", "message"),
    [
        ([], "at least one"),
        ({"name": "a"}, "at least one"),
        (["a"], "branches.0: must be"),
        ([{"condition": "{{a}} exists"}], "branches.0: must be"),
        ([{"name": ""}], "branches.0: must be"),
        ([{"name": "a"}, {"name": "a", "condition": "{{a}} exists"}], "the same name"),
        ([{"name": "a"}, {"name": "b"}], "only one can be the default"),
        ([{"name": "a", "when": 1}], "unknown key 'when'"),
        ([{"name": "a", "condition": 5}], "branches.0, the condition: must be"),
    ],
)
def test_branches_that_cannot_be_read_are_refused(branches: JsonValue, message: str) -> None:
    with pytest.raises(Rejection) as error:
        parse_branches(branches)

    assert error.value.reason == "condition_invalid"
    assert message in error.value.message


comparisons = st.builds(
    lambda name, operator, value: Comparison(
        Side(name, parse_template(f"{{{{{name}}}}}")),
        operator,
        None if operator.unary else Side(value, parse_template(value)),
    ),
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(Operator),
    json_values.filter(lambda value: b"{{" not in dumps(value)),
)
conditions: st.SearchStrategy[Condition] = st.recursive(
    comparisons,
    lambda parts: (
        st.builds(Not, parts)
        | st.builds(Group, st.sampled_from(["all", "any"]), st.lists(parts, min_size=1, max_size=3).map(tuple))
    ),
    max_leaves=6,
)
stores = st.dictionaries(st.sampled_from(["a", "b", "c"]), json_values)


def outcome(condition: Condition, store: JsonObject) -> bool | str:
    reason = reason_of(evaluate, condition, lookup_in(store))
    return reason if reason is not None else evaluate(condition, lookup_in(store)).result


@given(conditions, stores)
def test_not_not_changes_nothing(condition: Condition, store: JsonObject) -> None:
    assert outcome(Not(Not(condition)), store) == outcome(condition, store)


@given(conditions, conditions, stores)
def test_not_all_is_any_not(one: Condition, other: Condition, store: JsonObject) -> None:
    assert outcome(Not(Group("all", (one, other))), store) == outcome(Group("any", (Not(one), Not(other))), store)


@given(conditions, stores)
def test_every_comparison_is_recorded_once_whatever_was_settled(condition: Condition, store: JsonObject) -> None:
    if outcome(condition, store) != "comparison_invalid":
        evaluation = evaluate(condition, lookup_in(store))

        assert len(evaluation.operands) == size(condition)
        assert {read.path for read in evaluation.reads} == {
            str(path) for r in references_of(condition) for path in r.paths
        }


def size(condition: Condition) -> int:
    match condition:
        case Comparison():
            return 1
        case Not():
            return size(condition.condition)
        case Group():
            return sum(map(size, condition.conditions))


def test_comparisons_that_look_at_more_than_a_store_holds_are_refused() -> None:
    # Each looks at every item: thousands of them would hold the partition up for hours.
    condition = parse_condition(" OR ".join(["{{big}} contains 1"] * 30))

    with pytest.raises(Rejection) as refused:
        evaluate(condition, lambda _: [0] * 250_000)

    assert refused.value.reason == "result_too_large"
