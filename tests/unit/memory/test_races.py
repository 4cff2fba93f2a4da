"""What is reported of a race, and what is none."""

import pytest

from tests.support.memory_store import Tables, memory_event
from workers.logic.memory.timestamps import timestamp


def _two_writers(**second: object) -> dict:
    tables = Tables()
    tables.say("memory.write", "run-1", type="Json", value={"a": 1, "b": 1})
    tables.say("memory.write", "run-2", type="Json", value={"a": 2, "b": 1})
    conflict = tables.conflict("memory.write", "run-3", type="Json", **second)
    return conflict or {}


def test_a_race_shows_base_current_and_attempted_with_their_patches() -> None:
    conflict = _two_writers(value={"a": 3, "b": 1}, expected_version=1)

    assert conflict["kind"] == "conditional_write"
    assert (conflict["expected_version"], conflict["current_version"]) == (1, 2)
    assert (conflict["base"]["version"], conflict["base"]["value"]) == (1, {"a": 1, "b": 1})
    assert (conflict["current"]["version"], conflict["current"]["value"]) == (2, {"a": 2, "b": 1})
    assert (conflict["attempted"]["version"], conflict["attempted"]["value"]) == (None, {"a": 3, "b": 1})
    assert conflict["diff"] == {
        "base_to_current": [{"op": "replace", "path": "/a", "value": 2}],
        "base_to_attempted": [{"op": "replace", "path": "/a", "value": 3}],
    }
    assert conflict["overlapping_paths"] == ["/a"]
    assert (conflict["mergeable"], conflict["resolution"]) == (False, "rejected")


def test_disjoint_changes_are_called_mergeable_though_the_write_is_refused() -> None:
    conflict = _two_writers(value={"a": 1, "b": 3}, expected_version=1)

    assert (conflict["overlapping_paths"], conflict["mergeable"], conflict["resolution"]) == ([], True, "rejected")


def test_merge_keeps_both_sides_and_says_that_it_did() -> None:
    tables = Tables()
    tables.say("memory.write", type="Json", value={"a": 1, "b": 1})
    tables.say("memory.write", type="Json", value={"a": 2, "b": 1})

    written = tables.say("memory.write", type="Json", value={"a": 1, "b": 3}, expected_version=1, on_conflict="merge")

    assert (written[0], written[1]["version"], written[1]["merged"]) == ("memory.written", 3, True)
    assert tables.say("memory.read", type="Json")[1]["value"] == {"a": 2, "b": 3}


def test_a_merged_race_is_reported_as_merged() -> None:
    conflict = _two_writers(value={"a": 1, "b": 3}, expected_version=1, on_conflict="merge")

    assert (conflict["mergeable"], conflict["resolution"]) == (True, "merged")


def test_merge_refuses_overlapping_changes() -> None:
    conflict = _two_writers(value={"a": 2, "b": 1}, expected_version=1, on_conflict="merge")

    assert (conflict["resolution"], conflict["overlapping_paths"]) == ("rejected", ["/a"])


def test_merge_never_brings_back_what_was_forgotten() -> None:
    tables = Tables()
    tables.say("memory.write", type="Json", value={"a": 1})
    tables.say("memory.forget")

    outcome = tables.say("memory.write", type="Json", value={"a": 1, "b": 1}, expected_version=1, on_conflict="merge")

    assert outcome == ("memory.conflicted", {"expected_version": 1, "current_version": 0})


def test_a_base_that_was_forgotten_is_not_shown_again() -> None:
    tables = Tables()
    tables.say("memory.write", type="String", value="secret")
    tables.say("memory.forget")
    tables.say("memory.write", type="String", value="new")

    conflict = tables.conflict("memory.write", type="String", value="x", expected_version=1)

    assert conflict is not None
    assert (conflict["base"], conflict["diff"]) == (None, None)


def test_a_base_whose_time_is_over_is_not_shown_again() -> None:
    tables = Tables()
    tables.say("memory.write", type="String", value="old", ttl=1, ttl_unit="seconds")
    tables.later(seconds=2)

    conflict = tables.conflict("memory.write", type="String", value="x", expected_version=1)

    assert conflict is not None
    assert (conflict["base"], conflict["current"]["version"]) == (None, 0)


def test_a_large_value_is_replaced_by_its_size_and_hash() -> None:
    tables = Tables()
    tables.say("memory.write", type="String", value="x" * 40_000)

    conflict = tables.conflict("memory.write", type="String", value="small", expected_version=0)

    assert conflict is not None
    assert conflict["current"]["value_bytes"] == 40_002
    assert len(conflict["current"]["value_sha256"]) == 64
    assert "value" not in conflict["current"]
    assert conflict["diff"]["base_to_current"] is None
    assert conflict["diff"]["base_to_attempted"] == [{"op": "add", "path": "", "value": "small"}]


def test_an_unconditional_write_over_a_version_that_its_writer_had_not_seen_is_applied_and_reported() -> None:
    conflict = _two_writers(value={"a": 9}, read_version=1)

    assert (conflict["kind"], conflict["resolution"]) == ("lost_update", "overwritten")
    assert (conflict["base"]["version"], conflict["current"]["version"], conflict["attempted"]["version"]) == (1, 2, 3)


def test_a_writer_that_had_seen_nothing_loses_the_first_write_of_another() -> None:
    conflict = _two_writers(value={"a": 9}, read_version=0)

    assert (conflict["kind"], conflict["base"]["version"]) == ("lost_update", 0)


def test_a_writer_that_never_read_is_told_nothing() -> None:
    assert _two_writers(value={"a": 9}) == {}


def test_a_writer_that_saw_the_newest_version_races_with_nobody() -> None:
    assert _two_writers(value={"a": 9}, read_version=2) == {}


def test_a_run_does_not_race_with_itself() -> None:
    tables = Tables()
    tables.say("memory.write", "run-1", type="Integer", value=1)

    assert tables.conflict("memory.write", "run-1", type="Integer", value=2, read_version=0) is None


def test_expiry_is_no_race() -> None:
    tables = Tables()
    tables.say("memory.write", "run-1", type="Integer", value=1, ttl=1, ttl_unit="seconds")
    tables.say("memory.write", "run-2", type="Integer", value=2, ttl=1, ttl_unit="seconds")
    tables.later(seconds=1)

    assert tables.conflict("memory.write", "run-3", type="Integer", value=3, read_version=1) is None


def test_writers_without_a_run_are_known_by_their_commands() -> None:
    tables = Tables()
    tables.decide(memory_event("memory.write", "c-1", None, type="Integer", value=1, expected_version=0))

    conflict = tables.conflict("memory.write", None, type="Integer", value=2, expected_version=0)

    assert conflict is not None
    assert conflict["current"]["writer"] == {"command_id": "c-1", "command_source": "/test"}
    attempted = conflict["attempted"]["writer"]
    assert attempted == {"command_id": conflict["command_id"], "command_source": "/test"}
    assert attempted["command_id"] != "c-1"


def test_what_a_writer_says_of_itself_stands_beside_its_command() -> None:
    tables = Tables()
    tables.say("memory.write", type="Integer", value=1)

    conflict = tables.conflict(
        "memory.write", None, type="Integer", value=2, expected_version=0, writer={"user_id": "mia", "node_id": None}
    )

    assert conflict is not None
    assert conflict["current"]["writer"] == {"execution_id": "run-1"}
    assert conflict["attempted"]["writer"] == {
        "user_id": "mia",
        "command_id": conflict["command_id"],
        "command_source": "/test",
    }


def test_an_execution_that_is_named_stands_for_the_command() -> None:
    tables = Tables()
    tables.say("memory.write", None, type="Integer", value=1, writer={"execution_id": "run-9"})

    conflict = tables.conflict("memory.write", "run-3", type="Integer", value=2, expected_version=0)

    assert conflict is not None
    assert conflict["current"]["writer"] == {"execution_id": "run-9"}


def test_the_writer_that_forgot_the_item_is_named() -> None:
    tables = Tables()
    tables.say("memory.write", "run-1", type="Integer", value=1)
    tables.say("memory.forget", "run-2")

    conflict = tables.conflict("memory.write", "run-3", type="Integer", value=2, expected_version=1)

    assert conflict is not None
    assert (conflict["current"]["version"], conflict["current"]["writer"]) == (0, {"execution_id": "run-2"})
    assert conflict["current"]["written_at"] == timestamp(tables.now)


def test_an_expired_item_was_taken_by_nobody() -> None:
    tables = Tables()
    tables.say("memory.write", type="Integer", value=1, ttl=1, ttl_unit="seconds")
    tables.later(seconds=2)

    conflict = tables.conflict("memory.write", "run-3", type="Integer", value=2, expected_version=1)

    assert conflict is not None
    assert conflict["current"] == {"version": 0, "value": None}


def _patched(patch: object, *, base: object, current: object, **said: object) -> dict | None:
    """What comes of a merge patch whose writer knew `base` at version 1, while `current` was stored since."""
    tables = Tables()
    tables.say("memory.write", "run-1", type="Json", value=base)
    tables.say("memory.write", "run-2", type="Json", value=current)
    fields = {"type": "Json", "operation": "merge_patch", "value": patch, "read_version": 1, **said}
    return tables.conflict("memory.update", "run-3", **fields)


@pytest.mark.parametrize(
    ("patch", "base", "current", "paths"),
    [
        ({"a": 3}, {"a": 1}, {"a": 2}, ["/a"]),
        ({"a": 2}, {"a": 1}, {"a": 2}, ["/a"]),
        ({"a": None}, {"a": 1}, {"a": 2}, ["/a"]),
        ({"a": 3}, {"a": 1}, {}, ["/a"]),
        ({"a": 3}, {}, {"a": 2}, ["/a"]),
        ({"a": {"b": 3}, "c": 3}, {"a": {"b": 1}}, {"a": {"b": 2}, "c": 2}, ["/a/b", "/c"]),
        ({"a": {"b": 3}}, {}, {"a": {"b": 2}}, ["/a/b"]),
        ({"a": {"b": 3}}, {"a": 1}, {"a": 2}, ["/a"]),
        ({"a": {"b": 3}}, {"a": {"c": 1}}, {}, ["/a"]),
        ({"a": 3}, {"a": 1}, [1], [""]),
        ([3], {"a": 1}, {"a": 2}, [""]),
    ],
)
def test_a_merge_patch_that_replaces_what_its_writer_had_not_seen_is_a_lost_update(
    patch: object, base: object, current: object, paths: list[str]
) -> None:
    conflict = _patched(patch, base=base, current=current)

    assert conflict is not None
    assert (conflict["kind"], conflict["resolution"], conflict["mergeable"]) == ("lost_update", "overwritten", False)
    assert (conflict["expected_version"], conflict["base"]["value"], conflict["current"]["value"]) == (1, base, current)
    assert conflict["overlapping_paths"] == paths
    assert conflict["attempted"]["version"] == 3
    assert conflict["attempted"]["writer"] == {"execution_id": "run-3"}


@pytest.mark.parametrize(
    ("patch", "base", "current"),
    [
        ({"b": 3}, {"a": 1}, {"a": 2}),
        ({"a": {"c": 3}}, {"a": {"b": 1}}, {"a": {"b": 2}}),
        ({"a": {"c": 3}}, {}, {"a": {"b": 2}}),
        ({"a": {"c": 3}}, {"a": 1}, {"a": 1, "b": 2}),
        ({}, {"a": 1}, {"a": 2}),
    ],
)
def test_a_merge_patch_beside_what_others_made_loses_nothing(patch: object, base: object, current: object) -> None:
    assert _patched(patch, base=base, current=current) is None


def test_a_merge_patch_whose_writer_saw_nothing_loses_only_what_it_sets() -> None:
    assert _patched({"b": 3}, base={}, current={"a": 2}, read_version=0) is None
    conflict = _patched({"a": 3}, base={}, current={"a": 2}, read_version=0)
    assert conflict is not None
    assert (conflict["base"]["version"], conflict["overlapping_paths"]) == (0, ["/a"])


def test_a_merge_patch_from_a_base_that_is_gone_is_reported() -> None:
    tables = Tables()
    tables.say("memory.write", "run-1", type="Json", value={"a": 1}, ttl=1, ttl_unit="seconds")
    tables.later(seconds=2)
    tables.say("memory.write", "run-2", type="Json", value={"a": 1})

    conflict = tables.conflict(
        "memory.update", "run-3", type="Json", operation="merge_patch", value={"b": 1}, read_version=1
    )

    assert conflict is not None
    assert (conflict["base"], conflict["overlapping_paths"], conflict["mergeable"]) == (None, [], False)


def test_a_merge_patch_that_knows_the_newest_version_races_with_nobody() -> None:
    assert _patched({"a": 3}, base={"a": 1}, current={"a": 2}, read_version=2) is None
    assert _patched({"a": 3}, base={"a": 1}, current={"a": 2}, expected_version=2) is None
    assert _patched({"a": 3}, base={"a": 1}, current={"a": 2}, read_version=None) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"operation": "increment", "by": 1, "type": "Integer"},
        {"operation": "max", "value": 9, "type": "Integer"},
        {"operation": "min", "value": 0, "type": "Integer"},
        {"operation": "append", "value": 9, "type": "Integer[]"},
        {"operation": "union", "value": [9], "type": "Integer[]"},
    ],
)
def test_updates_that_are_made_of_what_is_stored_race_with_nobody(fields: dict) -> None:
    tables = Tables()
    for run, number in (("run-1", 1), ("run-2", 2)):
        value = [number] if "[]" in fields["type"] else number
        tables.say("memory.write", run, type=fields["type"], value=value)

    assert tables.conflict("memory.update", "run-3", **fields, read_version=1) is None


def test_paths_of_long_names_are_shown_as_far_as_they_fit() -> None:
    def value(number: int) -> dict:
        return {"k" * 12_000: {str(name): number for name in range(50)}}

    tables = Tables()
    tables.say("memory.write", "run-1", type="Json", value=value(0))
    tables.say("memory.write", "run-2", type="Json", value=value(1))
    conflict = tables.conflict("memory.write", "run-3", type="Json", value=value(2), expected_version=1)

    assert conflict is not None
    assert len(conflict["overlapping_paths"]) == 2
    assert conflict["mergeable"] is False
