from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import Rejection
from schemas.exact_json import JsonValue, dumps, loads
from tests.support.memory_store import Tables
from workers.logic.memory.diff import NOTHING, MaybeValue
from workers.logic.memory.updates import merge_patch, updated


def _update(operation: str, current: MaybeValue, operand: JsonValue, **more: object) -> JsonValue:
    options = {"type_name": "Json", "max_items": None, **more}
    return updated(operation, current, operand, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stored", "by", "total"),
    [
        (b"1", b"2", b"3"),
        (b"100.00", b"1", b"101.00"),
        (b"0.1", b"0.2", b"0.3"),
        (b"12345678901234567890", b"1", b"12345678901234567891"),
        (b"-0.5", b"0.5", b"0.0"),
        (b"0.1234567890123456789", b"1000000000000000000000", b"1000000000000000000000.1234567890123456789"),
        (b"1e2", b"1", b"101"),
    ],
)
def test_increments_are_exact(stored: bytes, by: bytes, total: bytes) -> None:
    assert dumps(_update("increment", loads(stored), loads(by))) == total


def test_an_increment_of_nothing_begins_at_zero() -> None:
    assert _update("increment", NOTHING, 5) == 5


def test_a_sum_of_too_many_digits_is_refused_at_once() -> None:
    with pytest.raises(Rejection) as refused:
        _update("increment", 1, Decimal("1e5000"))
    assert refused.value.reason == "number_too_large"


@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**9), max_value=10**9)))
def test_the_order_of_increments_does_not_matter(steps: list[Decimal]) -> None:
    forward: JsonValue = 0
    backward: JsonValue = 0
    for step in steps:
        forward = _update("increment", forward, step)
    for step in reversed(steps):
        backward = _update("increment", backward, step)
    assert forward == backward == sum(steps)


def test_append_keeps_the_newest_items() -> None:
    assert _update("append", [1, 2, 3], 4, max_items=3) == [2, 3, 4]
    assert _update("append", NOTHING, {"a": 1}) == [{"a": 1}]


def test_union_adds_only_what_is_new() -> None:
    assert _update("union", [1, "1"], [1, True, "2", "2"]) == [1, "1", True, "2"]
    assert _update("union", [1], 2) == [1, 2]


def test_max_and_min_compare_numbers_exactly() -> None:
    assert _update("max", Decimal(9007199254740993), 9007199254740992) == Decimal(9007199254740993)
    assert _update("min", Decimal("0.1"), Decimal("0.09")) == Decimal("0.09")
    assert _update("max", NOTHING, 3) == 3


def test_max_of_instants_compares_times_not_texts() -> None:
    later = "2026-11-30T13:00:00+02:00"
    assert _update("max", "2026-11-30T12:00:00Z", later, type_name="DateTime") == "2026-11-30T12:00:00Z"
    assert _update("max", "2026-11-30T10:00:00.5Z", "2026-11-30T10:00:00.49Z", type_name="DateTime").endswith(".5Z")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("operation", "current", "operand"),
    [
        ("increment", "1", 1),
        ("increment", 1, "1"),
        ("increment", True, 1),
        ("append", {"a": 1}, 1),
        ("union", "text", 1),
        ("max", 1, "1"),
        ("min", NOTHING, {"a": 1}),
    ],
)
def test_an_operation_that_does_not_fit_is_refused(operation: str, current: MaybeValue, operand: JsonValue) -> None:
    with pytest.raises(Rejection) as refused:
        _update(operation, current, operand)
    assert refused.value.reason == "operation_invalid"


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        # RFC 7396, appendix A.
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_does_what_rfc_7396_says(target: JsonValue, patch: JsonValue, result: JsonValue) -> None:
    assert merge_patch(target, patch) == result


def test_an_update_is_a_version_of_its_own_and_returns_the_value() -> None:
    tables = Tables()
    tables.say("memory.update", type="Integer", operation="increment", by=5)

    outcome = tables.say("memory.update", type="Integer", operation="increment", by=5)

    assert outcome == (
        "memory.updated",
        {"version": 2, "value": 10, "expires_at": "2026-12-30T12:00:00.000000Z"},
    )


def test_an_update_keeps_to_the_type() -> None:
    tables = Tables()
    tables.say("memory.write", type="Integer", value=1)

    misfit = tables.say("memory.update", type="Integer", operation="increment", by=Decimal("0.5"))
    widened = tables.say("memory.update", type="Decimal", operation="increment", by=Decimal("0.5"))
    narrowed = tables.say("memory.update", type="Integer", operation="increment", by=1)

    assert misfit[1]["code"] == "type_mismatch"
    assert widened[1]["value"] == Decimal("1.5")
    assert narrowed[1]["code"] == "type_mismatch"


def test_a_conditional_update_is_refused_when_another_was_faster() -> None:
    tables = Tables()
    tables.say("memory.write", type="Integer", value=1)

    outcome = tables.say("memory.update", type="Integer", operation="increment", expected_version=0)

    assert outcome == ("memory.conflicted", {"expected_version": 0, "current_version": 1})


@pytest.mark.parametrize(
    "fields",
    [
        {"operation": "increment", "value": 1},
        {"operation": "append"},
        {"operation": "append", "by": 1, "value": 1},
        {"operation": "union", "value": [1], "max_items": 3},
    ],
)
def test_an_update_that_lacks_what_its_operation_needs_is_refused(fields: dict) -> None:
    outcome = Tables().say("memory.update", type="Json", **fields)

    assert (outcome[0], outcome[1]["code"]) == ("memory.rejected", "operation_invalid")
