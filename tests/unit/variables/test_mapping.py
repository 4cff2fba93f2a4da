"""Output mappings: which writes they plan, and when none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue
from tests.support.json_values import json_values, lookup_in, names, reason_of
from workers.logic.variables.mapping import Write, plan_mapping, plan_values
from workers.logic.variables.references import Read


def plan(mapping: JsonObject, store: JsonObject, output: JsonObject | None = None) -> tuple[Write, ...]:
    return plan_mapping(mapping, lookup_in({**store, **(output or {})}), lookup_in(store))[0]


def applied(writes: tuple[Write, ...], store: JsonObject) -> JsonObject:
    """Apply as the store does: each write at its place, objects on the way made where nothing is."""
    for write in writes:
        *way, last = write.segments
        store = target = dict(store)
        for segment in way:
            inner = dict(target.get(segment) or {})
            target[segment] = inner
            target = inner
        target[last] = write.value
    return store


def refused(mapping: JsonObject, store: JsonObject) -> Rejection:
    with pytest.raises(Rejection) as error:
        plan(mapping, store)
    return error.value


def test_names_are_set_at_the_top_level_with_their_types() -> None:
    writes = plan({"text": "{{agent.text}}", "pages": "{{agent.n}}", "fixed": 1}, {}, {"agent": {"text": "t", "n": 3}})

    assert writes == (Write(("text",), "t"), Write(("pages",), 3), Write(("fixed",), 1))


def test_all_references_read_the_store_as_it_was() -> None:
    assert plan({"a": "{{b}}", "b": "{{a}}"}, {"a": 1, "b": 2}) == (Write(("a",), 2), Write(("b",), 1))


def test_a_dotted_target_keeps_the_siblings_and_does_not_leak_unmapped_fields() -> None:
    """camunda#35251."""
    store: JsonObject = {"a": {"a1": 1}}
    output: JsonObject = {"step": {"a": {"a2": 2, "a3": 3}}}

    writes = plan({"a.a2": "{{step.a.a2}}"}, store, output)

    assert applied(writes, store) == {"a": {"a1": 1, "a2": 2}}


def test_two_steps_fill_one_object() -> None:
    """camunda#3621."""
    first = applied(plan({"result.price": 100}, {}), {})

    assert applied(plan({"result.amount": 1200}, first), first) == {"result": {"price": 100, "amount": 1200}}


def test_several_targets_fill_one_object_at_once() -> None:
    writes = plan({"r.a.x": 1, "r.a.y": 2, "r.b": 3}, {"r": {"c": 4}})

    assert applied(writes, {"r": {"c": 4}}) == {"r": {"a": {"x": 1, "y": 2}, "b": 3, "c": 4}}


@pytest.mark.parametrize(
    ("stored", "target"),
    [
        ({"r": 1}, "r.x"),
        ({"r": "t"}, "r.x"),
        ({"r": [1]}, "r.0"),
        ({"r": {"a": False}}, "r.a.b.c"),
        ({"r": {"a": []}}, "r.a.0"),
    ],
)
def test_a_dotted_target_under_a_scalar_or_a_list_is_refused(stored: JsonObject, target: str) -> None:
    assert refused({"ok": 1, target: 2}, stored).reason == "target_not_an_object"


@pytest.mark.parametrize("store", [{}, {"r": None}, {"r": {"a": None}}, {"r": {"a": {}}}])
def test_objects_are_made_where_nothing_or_null_is(store: JsonObject) -> None:
    assert plan({"r.a.b": 1}, store) == (Write(("r", "a", "b"), 1),)


def test_a_numeric_segment_is_a_key_of_an_object() -> None:
    assert applied(plan({"r.0": "x"}, {}), {}) == {"r": {"0": "x"}}


@pytest.mark.parametrize("pair", [("a", "a.b"), ("a.b", "a.b.c.d"), ("a.b.c", "a")])
def test_a_target_inside_of_another_is_refused(pair: tuple[str, str]) -> None:
    rejection = refused({pair[0]: 1, "other": 2, pair[1]: 3}, {})

    assert rejection.reason == "targets_overlap"


def test_targets_that_only_begin_alike_do_not_overlap() -> None:
    assert len(plan({"a.b": 1, "a.bc": 2, "ab": 3}, {})) == 3


@pytest.mark.parametrize("target", ["input", "system.x", "_prev", "state.x", "outputs"])
def test_a_reserved_name_is_no_target(target: str) -> None:
    assert refused({target: 1}, {}).reason == "reserved_name"


def test_reserved_names_are_free_inside_of_an_object() -> None:
    assert plan({"result.input": 1}, {}) == (Write(("result", "input"), 1),)


@pytest.mark.parametrize(
    "target", ["", "a.", ".a", "a..b", "a {{b}}", " a", "a. b", "a|b", "a\x00", "x" * 257, "a." + "x" * 257]
)
def test_a_target_that_no_reference_could_name_is_refused(target: str) -> None:
    assert refused({target: 1}, {}).reason == "name_invalid"


def test_a_wrong_reference_is_reported_with_its_target() -> None:
    rejection = refused({"good": 1, "bad": "{{a..b}}"}, {})

    assert rejection.reason == "template_invalid"
    assert rejection.message.startswith("in 'bad', at character 5")


def test_reads_are_reported_once_each() -> None:
    _, reads = plan_mapping({"x": "{{a}} {{b}}", "y": "{{a}}"}, lookup_in({"a": 1}), lookup_in({}))

    assert reads == (Read("a", found=True, fallback=False), Read("b", found=False, fallback=False))


def test_an_empty_mapping_writes_nothing() -> None:
    assert plan_mapping({}, lookup_in({}), lookup_in({})) == ((), ())


def test_values_that_are_data_are_planned_without_looking_for_references() -> None:
    store: JsonObject = {"r": {"kept": 1}, "secret": "s"}
    writes = plan_values({"note": "{{secret}} {{", "r.x": ["{{secret}}"]}, lookup_in(store))

    assert applied(writes, store) == {"note": "{{secret}} {{", "r": {"kept": 1, "x": ["{{secret}}"]}, "secret": "s"}
    assert reason_of(plan_values, {"input": 1}, lookup_in({})) == "reserved_name"
    assert reason_of(plan_values, {"r.x": 1}, lookup_in({"r": 1})) == "target_not_an_object"


objects = st.dictionaries(names, json_values | st.dictionaries(names, json_values, max_size=3), max_size=4)
targets = st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=3).map(".".join)


@given(
    st.dictionaries(targets, json_values.filter(lambda value: "{" not in str(value)), max_size=3),
    st.dictionaries(st.sampled_from(["a", "b", "c"]), objects | json_values, max_size=3),
)
def test_a_mapping_changes_its_targets_and_drops_nothing_else(mapping: JsonObject, store: JsonObject) -> None:
    reason = reason_of(plan, mapping, store)
    if reason is not None:
        assert reason in {"targets_overlap", "target_not_an_object"}
        return

    writes = plan(mapping, store)

    after = applied(writes, store)
    assert_kept(store, after, {write.segments for write in writes}, ())
    for write in writes:
        assert lookup_value(after, write.segments) == write.value


def assert_kept(before: JsonValue, after: JsonValue, written: set[tuple[str, ...]], place: tuple[str, ...]) -> None:
    if place in written:
        return
    if isinstance(before, dict) and any(target[: len(place)] == place for target in written):
        assert isinstance(after, dict)
        for key, part in before.items():
            assert_kept(part, after[key], written, (*place, key))
    elif before is not None:
        assert after == before


def lookup_value(value: JsonValue, segments: tuple[str, ...]) -> JsonValue:
    for segment in segments:
        assert isinstance(value, dict)
        value = value[segment]
    return value
