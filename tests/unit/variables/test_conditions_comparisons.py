"""What each operator says about two values (docs/references.md, "Comparisons")."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import Rejection
from schemas.exact_json import JsonValue, loads
from tests.support.json_values import json_values, numbers, reason_of, texts
from workers.logic.variables.comparisons import SYMBOLS, Operator, compare

OPPOSITES = [
    (Operator.EXISTS, Operator.NOT_EXISTS),
    (Operator.EQUALS, Operator.NOT_EQUALS),
    (Operator.CONTAINS, Operator.NOT_CONTAINS),
    (Operator.IN, Operator.NOT_IN),
    (Operator.IS_EMPTY, Operator.IS_NOT_EMPTY),
]


def holds(left: JsonValue, operator: str, right: JsonValue = None) -> bool:
    return compare(left, SYMBOLS.get(operator) or Operator(operator), right)


def test_only_null_does_not_exist() -> None:
    assert not holds(None, "exists")
    assert all(holds(value, "exists") for value in (False, 0, "", [], {}))


def test_empty_is_null_and_what_has_nothing_in_it() -> None:
    assert all(holds(value, "is_empty") for value in (None, "", [], {}))
    assert not any(holds(value, "is_empty") for value in (0, False, " ", [None], {"a": None}, Decimal(0)))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, Decimal("1.00")),
        (50000, "50000.0"),
        ("0.8", Decimal("0.8")),
        ("-1e3", -1000),
        (loads(b"23843037174560269"), "23843037174560269"),
        ([1, {"a": Decimal("2.0")}], [Decimal(1), {"a": 2}]),
        (None, None),
        (True, True),
        ("x", "x"),
    ],
)
def test_equal_is_equal_content(left: JsonValue, right: JsonValue) -> None:
    assert holds(left, "==", right)
    assert holds(right, "==", left)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, True),
        (0, False),
        (0, None),
        ("", None),
        ("true", True),
        ("1.0", "1"),
        ("007", 7),
        ("1_000", 1000),
        (" 1", 1),
        ("NaN", 1),
        ("1e99999999999999999999", 1),
        (["1"], [1]),
        ([1], [1, 1]),
        ([True], [1]),
        ({"a": 1}, {"b": 1}),
        ({}, []),
        (loads(b"23843037174560269"), loads(b"23843037174560268")),
        (Decimal("0.1234567890123456789"), Decimal("0.1234567890123456788")),
    ],
)
def test_other_content_is_not_equal(left: JsonValue, right: JsonValue) -> None:
    assert holds(left, "!=", right)
    assert holds(right, "!=", left)


@pytest.mark.parametrize(
    ("smaller", "greater"),
    [
        (1, 2),
        (Decimal("0.1234567890123456788"), Decimal("0.1234567890123456789")),
        (loads(b"23843037174560268"), loads(b"23843037174560269")),
        ("9000", 50000),
        (9000, "50000"),
        (1, Decimal("1e999999999")),
        ("2024-01-31", "2024-02-01"),
        ("50000", "9000"),
    ],
)
def test_numbers_are_ordered_by_value_and_texts_by_code_points(smaller: JsonValue, greater: JsonValue) -> None:
    assert [holds(smaller, symbol, greater) for symbol in ("<", "<=", ">", ">=")] == [True, True, False, False]
    assert [holds(greater, symbol, smaller) for symbol in ("<", "<=", ">", ">=")] == [False, False, True, True]


@pytest.mark.parametrize(("left", "right"), [(1, Decimal("1.0")), ("1", 1), ("a", "a")])
def test_what_is_equal_is_neither_greater_nor_less(left: JsonValue, right: JsonValue) -> None:
    assert [holds(left, symbol, right) for symbol in ("<", "<=", ">", ">=")] == [False, True, False, True]


def test_null_is_in_no_order() -> None:
    assert not any(holds(None, symbol, 5) or holds(5, symbol, None) for symbol in ("<", "<=", ">", ">="))


@pytest.mark.parametrize(
    ("whole", "part"),
    [
        ("hello", "ell"),
        ("abc12", 12),
        (4711, "71"),
        ([1, "2"], 2),
        ([None], None),
        ([{"a": 1}], {"a": 1}),
        ({"a": 1}, "a"),
        ({"7": 1}, 7),
    ],
)
def test_texts_contain_texts_lists_contain_items_objects_contain_keys(whole: JsonValue, part: JsonValue) -> None:
    assert holds(whole, "contains", part)
    assert holds(part, "in", whole)


@pytest.mark.parametrize(
    ("whole", "part"),
    [("hello", "Ell"), ([1], "x"), ({"a": 1}, "b"), (None, "a"), ("null", None), ({"a": 1}, None), ([["a"]], "a")],
)
def test_what_is_not_in_there_is_not_contained(whole: JsonValue, part: JsonValue) -> None:
    assert holds(whole, "not_contains", part)
    assert holds(part, "not_in", whole)


def test_texts_start_and_end_with_texts() -> None:
    assert holds("invoice.pdf", "starts_with", "inv")
    assert holds("invoice.pdf", "ends_with", ".pdf")
    assert holds(4711, "starts_with", 47)
    assert not holds("Invoice", "starts_with", "inv")
    assert not holds(None, "starts_with", "a")
    assert not holds("a", "ends_with", None)


@pytest.mark.parametrize(
    ("left", "operator", "right"),
    [
        ({"a": 1}, ">", 5),
        ([1], "<", [2]),
        (True, ">=", False),
        ("abc", ">", 5),
        (5, "<=", "1e99999999999999999999"),
        (True, "contains", "r"),
        ("text", "contains", {"a": 1}),
        ({"a": 1}, "contains", ["a"]),
        ({"a": 1}, "starts_with", "a"),
        ("a", "ends_with", True),
        ("a", "in", False),
        ("a", "not_in", True),
    ],
)
def test_a_comparison_that_makes_no_sense_is_refused(left: JsonValue, operator: str, right: JsonValue) -> None:
    assert reason_of(holds, left, operator, right) == "comparison_invalid"


def test_the_refusal_shows_both_values_and_their_kinds() -> None:
    with pytest.raises(Rejection, match=r'^\["x+…? greater_than 5 makes no sense: a list and a number') as error:
        holds(["x" * 500], ">", 5)

    assert len(error.value.message) < 300
    with pytest.raises(Rejection, match=r'^\{"a":1\} greater_than true makes no sense: an object and a boolean'):
        holds({"a": 1}, ">", True)
    with pytest.raises(Rejection, match=r'^"a" less_than 5 makes no sense: a text and a number'):
        holds("a", "<", 5)


@given(json_values, json_values, st.sampled_from(Operator))
def test_any_comparison_has_an_answer_or_is_refused(left: JsonValue, right: JsonValue, operator: Operator) -> None:
    assert reason_of(compare, left, operator, right) in {None, "comparison_invalid"}


@given(json_values, json_values, st.sampled_from(OPPOSITES))
def test_an_operator_and_its_opposite_never_agree(
    left: JsonValue, right: JsonValue, pair: tuple[Operator, Operator]
) -> None:
    operator, opposite = pair
    reason = reason_of(compare, left, operator, right)

    assert reason_of(compare, left, opposite, right) == reason
    assert reason is not None or compare(left, operator, right) is not compare(left, opposite, right)


@given(json_values)
def test_every_value_equals_itself(value: JsonValue) -> None:
    assert holds(value, "==", value)


@given(numbers | texts.filter(lambda text: not text[-1:].isdigit()), numbers | texts)
def test_exactly_one_of_less_equal_and_greater_holds(left: JsonValue, right: JsonValue) -> None:
    if reason_of(holds, left, "<", right) is None:
        assert [holds(left, symbol, right) for symbol in ("<", "==", ">")].count(True) == 1
