"""The scratchpad's operations: seed 001's table, its defaults and its troubleshooting."""

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue, dumps
from schemas.limits import DEFAULT_LIMITS
from tests.support.json_values import json_objects, json_values, lookup_in, reason_of
from workers.logic.variables import scratchpad
from workers.logic.variables.scratchpad import Effect

LIMITS = DEFAULT_LIMITS


def applied(effect: Effect, values: Mapping[str, JsonValue]) -> JsonObject:
    kept = {key: value for key, value in values.items() if key not in effect.removed}
    return kept | dict(effect.written)


def append(values: JsonObject, value: JsonValue, max_items: int | None = None) -> Effect:
    return scratchpad.append("default", values, "k", value, LIMITS, max_items=max_items)


def summarize(values: JsonObject, key: str = "k", **options: int | str) -> Effect:
    return scratchpad.summarize("default", values, key, LIMITS, **options)


def test_write_creates_or_replaces_one_key_and_passes_its_details_on() -> None:
    effect = scratchpad.write("workflow", {"other": 1}, "result", {"a": 1}, LIMITS)

    assert applied(effect, {"other": 1}) == {"other": 1, "result": {"a": 1}}
    assert effect.output == {"operation": "write", "namespace": "workflow", "key": "result", "replaced": False}
    assert effect.details == effect.output
    assert scratchpad.write("n", {"k": None}, "k", 2, LIMITS).details["replaced"] is True


def test_append_accumulates_and_passes_details_and_the_list_on() -> None:
    effect = append({"k": ["first result"]}, "second result", 100)

    assert effect.written == {"k": ["first result", "second result"]}
    assert (
        effect.output
        == effect.details
        == {
            "operation": "append",
            "namespace": "default",
            "key": "k",
            "count": 2,
            "dropped": 0,
            "max_items": 100,
            "value": ["first result", "second result"],
        }
    )


@pytest.mark.parametrize(
    ("stored", "after"),
    [
        ({}, ["new"]),
        ({"k": None}, ["new"]),
        ({"k": "old"}, ["old", "new"]),
        ({"k": {"a": 1}}, [{"a": 1}, "new"]),
        ({"k": []}, ["new"]),
    ],
)
def test_what_is_no_list_becomes_the_first_item(stored: JsonObject, after: JsonValue) -> None:
    assert append(stored, "new").written == {"k": after}


def test_a_list_that_is_added_stays_one_item() -> None:
    assert append({"k": [1]}, [2, 3]).written == {"k": [1, [2, 3]]}


def test_twenty_items_are_kept_by_default_and_a_thousand_at_most() -> None:
    items: list[JsonValue] = list(range(1500))

    assert append({"k": items}, "x").written == {"k": [*range(1481, 1500), "x"]}
    assert append({"k": items}, "x", 1000).details["count"] == 1000
    assert append({"k": items}, "x", 1).written == {"k": ["x"]}
    assert append({"k": items}, "x", 1).details["dropped"] == 1500


@pytest.mark.parametrize("max_items", [0, -1, 1001])
def test_more_or_fewer_items_are_refused(max_items: int) -> None:
    assert reason_of(append, {}, "x", max_items) == "max_items_invalid"
    assert reason_of(summarize, {}, max_items=max_items) == "max_items_invalid"


def test_read_passes_the_stored_value_on() -> None:
    effect = scratchpad.read("n", {"k": [1]}, "k", LIMITS)

    assert (effect.written, effect.removed, effect.output) == ({}, (), [1])
    assert effect.details == {"operation": "read", "namespace": "n", "key": "k", "found": True}


def test_read_of_nothing_is_null() -> None:
    effect = scratchpad.read("n", {"K": 1}, "k", LIMITS)

    assert (effect.output, effect.details["found"]) == (None, False)


def test_read_without_a_key_passes_the_whole_namespace_on() -> None:
    effect = scratchpad.read("n", {"a": 1, "b": 2}, "", LIMITS)

    assert effect.output == {"a": 1, "b": 2}
    assert effect.details == {"operation": "read", "namespace": "n", "key": None, "found": True, "count": 2}
    assert scratchpad.read("n", {}, "", LIMITS).output == {}


def test_summarize_numbers_the_items_of_a_list() -> None:
    effect = summarize({"k": ["first response", "second response"]})

    assert effect.output == "1. first response\n2. second response"
    assert effect.written == {"k_summary": effect.output}
    assert effect.details == {
        "operation": "summarize",
        "namespace": "default",
        "key": "k",
        "summary_key": "k_summary",
        "characters": 36,
        "truncated": False,
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([{"a": [1, "ü"]}, 5, None, True], '1. {"a":[1,"ü"]}\n2. 5\n3. \n4. true'),
        ({"a": 1}, '{"a":1}'),
        ("text", "text"),
        (5, "5"),
        (None, ""),
        ([], ""),
    ],
)
def test_summarize_formats_every_kind(value: JsonValue, text: str) -> None:
    assert summarize({"k": value}).output == text


def test_summarize_takes_the_last_items_and_numbers_them_from_one() -> None:
    assert summarize({"k": ["a", "b", "c"]}, max_items=2).output == "1. b\n2. c"
    assert str(summarize({"k": list(range(50))}).output).splitlines()[0] == "1. 30"


def test_summarize_of_nothing_is_the_empty_text() -> None:
    assert summarize({}).output == ""
    assert summarize({}, key="").output == ""


def test_summarize_counts_code_points() -> None:
    effect = summarize({"k": "😀ü" * 1000}, max_chars=3)

    assert effect.output == "😀ü😀"
    assert (effect.details["characters"], effect.details["truncated"]) == (3, True)
    assert len(str(summarize({"k": "x" * 5000}).output)) == 1200


def test_less_than_one_character_is_refused() -> None:
    assert reason_of(summarize, {}, max_chars=0) == "max_chars_invalid"


def test_summarize_of_a_namespace_leaves_its_own_summary_out() -> None:
    first = summarize({"a": 1}, key="")
    second = summarize(applied(first, {"a": 1}), key="")

    assert first.written == second.written == {"summary": '{"a":1}'}
    assert summarize({"a": 1}, key="", summary_key="digest").written == {"digest": '{"a":1}'}


def test_clear_removes_one_key_or_the_namespace() -> None:
    one = scratchpad.clear("n", {"a": 1, "b": 2}, "a", LIMITS)
    whole = scratchpad.clear("n", {"a": 1, "b": 2}, "", LIMITS)

    assert (one.removed, one.output) == (("a",), {"operation": "clear", "namespace": "n", "key": "a", "removed": 1})
    assert (whole.removed, whole.details["removed"]) == (("a", "b"), 2)
    assert scratchpad.clear("n", {"a": 1}, "A", LIMITS).removed == ()


@pytest.mark.parametrize(
    "operate",
    [
        lambda namespace, key: scratchpad.write(namespace, {}, key or "", 1, LIMITS),
        lambda namespace, key: scratchpad.append(namespace, {}, key or "", 1, LIMITS),
        lambda namespace, key: scratchpad.read(namespace, {}, key, LIMITS),
        lambda namespace, key: scratchpad.summarize(namespace, {}, key, LIMITS),
        lambda namespace, key: scratchpad.clear(namespace, {}, key, LIMITS),
    ],
)
def test_names_have_1_to_256_characters_and_no_control_characters(operate: Callable[[str, str], Effect]) -> None:
    operate("Ü n.1" * 51, "k.1" * 80)

    assert {reason_of(operate, namespace, "k") for namespace in ("", "a\x00", "x" * 257)} == {"name_invalid"}
    assert {reason_of(operate, "n", key) for key in ("a\n", "x" * 257)} == {"name_invalid"}


def test_write_and_append_need_a_key_and_a_summary_key_is_a_name() -> None:
    with pytest.raises(Rejection, match="the key '' needs 1 to 256 characters"):
        scratchpad.write("n", {}, "", 1, LIMITS)

    assert reason_of(append, {}, 1) is None
    assert reason_of(scratchpad.append, "n", {}, "", 1, LIMITS) == "name_invalid"
    with pytest.raises(Rejection, match=r"the summary key 'k{40}' needs 1 to 256 characters"):
        summarize({}, key="k" * 256)


@pytest.mark.parametrize(
    ("value", "input_key", "stored"),
    [
        ("{last_output}", None, {"t": 1}),
        ({"note": "{input.note}"}, "ignored", {"note": "n"}),
        (0, None, 0),
        (False, None, False),
        (None, None, {"t": 1}),
        ("", "", {"t": 1}),
        ("", "state.customer", "C-1"),
        ("", " {state.customer} ", "C-1"),
        ("", "{{ absent || input.note }}", "n"),
        (None, "outputs.node-id.parsed", 5),
        (None, "event.body", None),
    ],
)
def test_the_input_key_is_used_where_the_value_is_empty(
    value: JsonValue, input_key: str | None, stored: JsonValue
) -> None:
    store: JsonObject = {
        "last_output": {"t": 1},
        "input": {"note": "n"},
        "state": {"customer": "C-1"},
        "outputs": {"node-id": {"parsed": 5}},
    }

    assert scratchpad.parse_value(value, input_key).render(lookup_in(store))[0] == stored


def test_a_wrong_input_key_is_refused() -> None:
    assert reason_of(scratchpad.parse_value, None, "state..x") == "template_invalid"


@given(json_values, st.integers(1, 50), st.integers(1, 1000))
def test_a_summary_is_stable_and_never_longer_than_asked(value: JsonValue, max_chars: int, max_items: int) -> None:
    values: JsonObject = {"k": value}
    first = summarize(values, max_chars=max_chars, max_items=max_items)
    second = summarize(applied(first, values), max_chars=max_chars, max_items=max_items)

    assert first == second
    assert len(str(first.output)) <= max_chars


@given(json_objects, st.lists(json_values, min_size=1, max_size=30), st.integers(1, 10))
def test_appending_keeps_the_last_items_in_order(values: JsonObject, items: list[JsonValue], max_items: int) -> None:
    values.pop("k", None)
    after: JsonObject = dict(values)
    for item in items:
        after = applied(append(after, item, max_items), after)

    assert dumps(after.pop("k")) == dumps(items[-max_items:])
    assert after == values


@given(json_objects, json_values)
def test_what_is_written_is_read_back_and_what_is_cleared_is_gone(values: JsonObject, value: JsonValue) -> None:
    after = applied(scratchpad.write("n", values, "k", value, LIMITS), values)
    cleared = applied(scratchpad.clear("n", after, "k", LIMITS), after)

    assert dumps(scratchpad.read("n", after, "k", LIMITS).output) == dumps(value)
    assert scratchpad.read("n", cleared, "k", LIMITS).details["found"] is False
    assert applied(scratchpad.clear("n", after, "", LIMITS), after) == {}
