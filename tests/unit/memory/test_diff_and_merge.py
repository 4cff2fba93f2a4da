import jsonpatch
from hypothesis import given
from hypothesis import strategies as st

from schemas.exact_json import JsonValue, dumps, loads
from tests.support.json_values import json_objects, json_values
from workers.logic.memory.diff import NOTHING, changes, make_patch, same
from workers.logic.memory.merge import merge

#: Values that have parts in common, so that patches are more than one replacement.
related = st.recursive(
    st.sampled_from([0, 1, True, None, "x"]),
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "a/b", "~"]), parts),
    max_leaves=10,
)


@given(related, related)
def test_a_patch_makes_the_target_of_the_base(base: JsonValue, target: JsonValue) -> None:
    patched = jsonpatch.apply_patch(loads(dumps(base)), make_patch(base, target))

    assert same(patched, target)


@given(json_values)
def test_nothing_differs_from_itself(value: JsonValue) -> None:
    assert make_patch(value, loads(dumps(value))) == []
    assert changes(value, loads(dumps(value))) == {}


def test_numbers_compare_as_written_and_true_is_not_one() -> None:
    assert not same(loads(b"100"), loads(b"100.00"))
    assert not same(loads(b"1"), loads(b"true"))
    assert same(loads(b"[1e5, {}]"), loads(b"[1e5,{}]"))
    assert make_patch(loads(b'{"n":100}'), loads(b'{"n":100.00}')) != []


def test_pointers_escape_what_they_must() -> None:
    assert make_patch({"a/b~c": 1}, {"a/b~c": 2}) == [{"op": "replace", "path": "/a~1b~0c", "value": 2}]


def test_an_insertion_into_a_list_is_one_operation() -> None:
    assert make_patch([1, 2, 3], [1, 9, 2, 3]) == [{"op": "add", "path": "/1", "value": 9}]
    assert make_patch([1, 2, 3], [1, 3]) == [{"op": "remove", "path": "/1"}]


@given(json_objects, json_objects)
def test_merging_what_nobody_else_changed_is_the_attempt(base: JsonValue, attempted: JsonValue) -> None:
    merged = merge(base, base, attempted)

    assert merged.possible
    assert same(merged.value, attempted)


@given(related, related, related)
def test_a_merge_holds_every_change_of_both_sides(base: JsonValue, current: JsonValue, attempted: JsonValue) -> None:
    merged = merge(base, current, attempted)

    if merged.possible:
        kept = changes(base, merged.value)
        assert kept == {**changes(base, current), **changes(base, attempted)}


@given(related, related, related)
def test_who_was_first_does_not_matter_to_a_merge(base: JsonValue, one: JsonValue, other: JsonValue) -> None:
    assert merge(base, one, other).possible is merge(base, other, one).possible
    if merge(base, one, other).possible:
        assert same(merge(base, one, other).value, merge(base, other, one).value)


def test_the_same_new_value_on_both_sides_is_an_overlap() -> None:
    """Two runs that counted 5 up to 6 have counted twice."""
    assert merge({"n": 5}, {"n": 6}, {"n": 6}).overlapping == (("n",),)


def test_a_change_below_a_removed_object_is_an_overlap() -> None:
    assert merge({"a": {"b": 1}}, {}, {"a": {"b": 2}}).overlapping == (("a", "b"),)
    assert merge({"a": {"b": 1}}, {"a": {"b": 2}}, {}).overlapping == (("a",),)


def test_lists_are_merged_as_a_whole() -> None:
    assert merge({"l": [1]}, {"l": [1, 2]}, {"l": [1, 3]}).overlapping == (("l",),)


def test_nothing_on_both_sides_has_nothing_to_write() -> None:
    assert not merge(1, 1, NOTHING).possible


def test_a_merge_removes_what_one_side_removed_deep_inside() -> None:
    base: JsonValue = {"a": {"gone": 1, "kept": 2}, "b": 1}

    merged = merge(base, {"a": {"gone": 1, "kept": 2}, "b": 2}, {"a": {"kept": 2}, "b": 1})

    assert merged.possible
    assert merged.value == {"a": {"kept": 2}, "b": 2}
