"""The checker finds every kind of broken promise of memory, planted one by one into a history in which all were kept."""

from uuid import UUID

import pytest
from msgspec.structs import replace

from schemas.exact_json import dumps, loads
from tests.support.checker import check
from tests.support.history import event_of
from tests.support.planting import command_of, drop, found, hot_writes, is_of, records, rewrite, rewrite_first
from tests.support.simulated import simulate
from topics.catalog import Topic
from topics.codec import encode


def test_a_history_in_which_every_promise_was_kept_passes(history):
    verdict = check(history)

    assert verdict.holds, str(verdict)
    assert verdict.counts["conflicts: conditional_write"] > 10
    assert verdict.counts["conflicts: lost_update"] > 3
    assert verdict.counts["outcome copies"] > verdict.counts["commands"]
    assert verdict.counts["revisions"] > 50
    assert verdict.counts["bad records"] == 2


@pytest.mark.parametrize("seed", range(3))
def test_other_runs_pass_too(seed):
    verdict = check(simulate(100 + seed, commands=30, runs=5).recorded())

    assert verdict.holds, str(verdict)


def test_a_run_passes_in_which_a_copy_comes_behind_what_was_written_later():
    verdict = check(simulate(5, commands=90, runs=14).recorded())

    assert verdict.holds, str(verdict)


# -- outcomes


def test_a_command_without_an_outcome_is_found(history):
    outcome = event_of(records(history, Topic.MEMORY_RESULTS, "memory.found")[0])
    assert outcome is not None
    drop(history, Topic.MEMORY_RESULTS, lambda event: event.id == outcome.id)

    found(history, "outcome_missing")


def test_two_outcomes_under_different_ids_are_found(history):
    record = records(history, Topic.MEMORY_RESULTS, "memory.written")[0]
    event = event_of(record)
    assert event is not None
    again = replace(event, id="another")
    history.logs[Topic.MEMORY_RESULTS].append(replace(record, value=encode(again)))

    found(history, "outcome_duplicated")


def test_a_delivery_with_other_bytes_is_found(history):
    record = records(history, Topic.MEMORY_RESULTS, "memory.written")[0]
    event = event_of(record)
    assert event is not None
    again = replace(event, data={**event.data, "version": 99})
    history.logs[Topic.MEMORY_RESULTS].append(replace(record, value=encode(again)))

    found(history, "outcome_changed")


def test_an_outcome_that_differs_from_what_is_stored_is_found(history):
    event = event_of(records(history, Topic.MEMORY_RESULTS, "memory.missing")[0])
    assert event is not None
    rewrite(history, Topic.MEMORY_RESULTS, event.id, lambda data: data.update(version="0"), stored=False)

    found(history, "outcome_changed")


def test_an_outcome_that_nobody_asked_for_is_found(history):
    record = records(history, Topic.MEMORY_RESULTS, "memory.missing")[0]
    event = event_of(record)
    assert event is not None
    stray = replace(event, id="stray", data={**event.data, "command_id": "never sent"})
    history.logs[Topic.MEMORY_RESULTS].append(replace(record, value=encode(stray)))

    found(history, "outcome_of_nothing")


def test_an_outcome_without_its_row_is_found(history):
    del history.outcomes[5]

    found(history, "history_wrong")


# -- conflicts


def test_a_refused_write_without_a_conflict_event_is_found(history):
    conflict = event_of(records(history, Topic.MEMORY_CONFLICTS, "memory.conflict_detected", resolution="rejected")[0])
    assert conflict is not None
    drop(history, Topic.MEMORY_CONFLICTS, lambda event: event.id == conflict.id)
    history.outcomes = [
        row._replace(conflict=None) if is_of(row.conflict, conflict) else row for row in history.outcomes
    ]

    found(history, "conflict_missing")


def test_a_lost_update_that_was_not_reported_is_found(history):
    for conflict in records(history, Topic.MEMORY_CONFLICTS, "memory.conflict_detected", kind="lost_update"):
        event = event_of(conflict)
        assert event is not None
        drop(history, Topic.MEMORY_CONFLICTS, lambda each, lost=event: each.id == lost.id)
        history.outcomes = [
            row._replace(conflict=None) if is_of(row.conflict, event) else row for row in history.outcomes
        ]

    found(history, "lost_update_unreported")


def test_a_conflict_event_without_a_race_is_found(history):
    conflict = records(history, Topic.MEMORY_CONFLICTS, "memory.conflict_detected")[0]
    event = event_of(conflict)
    outcome = event_of(records(history, Topic.MEMORY_RESULTS, "memory.found")[0])
    assert event is not None
    assert outcome is not None
    from schemas.identity import derived_id, event_key

    command_id, source = str(outcome.data["command_id"]), str(outcome.data["command_source"])
    key = event_key(event.tenant, source, command_id)
    invented = replace(
        event,
        id=derived_id(key, "conflict"),
        data={**event.data, "command_id": command_id, "command_source": source},
    )
    value = encode(invented)
    history.logs[Topic.MEMORY_CONFLICTS].append(replace(conflict, value=value))
    history.outcomes = [row._replace(conflict=value) if row.command_key == key else row for row in history.outcomes]

    found(history, "conflict_unexplained")


def test_a_conflict_event_with_a_wrong_version_is_found(history):
    rewrite_first(
        history,
        Topic.MEMORY_CONFLICTS,
        "memory.conflict_detected",
        lambda data: data.update(current_version=int(str(data["current_version"])) + 1),
        resolution="rejected",
    )

    found(history, "conflict_wrong")


def test_conflict_deliveries_that_differ_are_found(history):
    record = records(history, Topic.MEMORY_CONFLICTS, "memory.conflict_detected")[0]
    event = event_of(record)
    assert event is not None
    again = replace(event, data={**event.data, "mergeable": not event.data["mergeable"]})
    history.logs[Topic.MEMORY_CONFLICTS].append(replace(record, value=encode(again)))

    found(history, "conflict_changed")


# -- versions and values


def test_a_version_that_nobody_made_is_found(history):
    newest = max(hot_writes(history), key=lambda event: int(str(event.data["version"])))
    rewrite(history, Topic.MEMORY_RESULTS, newest.id, lambda data: data.update(version=int(str(data["version"])) + 3))

    found(history, "version_gap")


def test_a_version_that_was_made_twice_is_found(history):
    event = hot_writes(history)[5]
    rewrite(history, Topic.MEMORY_RESULTS, event.id, lambda data: data.update(version=1))

    found(history, "version_reused")


def test_a_conditional_write_that_succeeded_on_a_stale_version_is_found(history):
    conditional = next(
        event
        for record in history.log(Topic.MEMORY_COMMANDS)
        if (event := event_of(record)) is not None
        and event.data.get("expected_version")
        and any(command_of(outcome) == event.id and not outcome.data.get("merged") for outcome in hot_writes(history))
    )
    rewrite(
        history,
        Topic.MEMORY_COMMANDS,
        conditional.id,
        lambda data: data.update(expected_version=int(str(data["expected_version"])) + 1),
    )

    found(history, "condition_ignored")


def test_a_read_of_a_version_long_gone_is_found(history):
    reads = [event for event in hot_writes(history, "memory.found") if int(str(event.data["version"])) > 12]
    old = next(
        event
        for event in hot_writes(history, "memory.found")
        if event.data["address"] == reads[-1].data["address"] and int(str(event.data["version"])) < 5
    )
    rewrite(
        history,
        Topic.MEMORY_RESULTS,
        reads[-1].id,
        lambda data: data.update(version=old.data["version"], value=old.data["value"]),
    )

    found(history, "not_linearizable")


def test_a_conflict_although_the_version_was_current_is_found(history):
    rewrite_first(
        history,
        Topic.MEMORY_RESULTS,
        "memory.conflicted",
        lambda data: data.update(current_version=data["expected_version"]),
    )

    found(history, "outcome_wrong")


def test_a_read_of_another_value_is_found(history):
    event = hot_writes(history, "memory.found")[3]
    rewrite(history, Topic.MEMORY_RESULTS, event.id, lambda data: data.update(value={"by": "nobody"}))

    found(history, "value_wrong")


def test_an_increment_that_was_applied_twice_is_found(history):
    updates = [
        event
        for record in records(history, Topic.MEMORY_RESULTS, "memory.updated")
        if (event := event_of(record)) is not None and "counter-" in str(event.data["address"])
    ]
    rewrite(history, Topic.MEMORY_RESULTS, updates[4].id, lambda data: data.update(value=int(str(data["value"])) + 1))

    found(history, "value_wrong")


def test_a_counter_that_does_not_hold_the_sum_is_found(history):
    history.items = [
        row._replace(value=dumps(int(str(loads(row.value))) + 1)) if "counter-" in row.address and row.value else row
        for row in history.items
    ]

    found(history, "sum_wrong")


def test_a_stored_item_at_another_version_is_found(history):
    place = next(place for place, row in enumerate(history.items) if "item-" in row.address)
    history.items[place] = history.items[place]._replace(version=history.items[place].version + 1)

    found(history, "item_wrong")


def test_a_version_missing_from_the_history_is_found(history):
    row = next(row for row in history.items if "counter-" in row.address)
    history.versions = [
        version for version in history.versions if (version.address, version.version) != (row.address, row.version)
    ]

    found(history, "history_wrong")


# -- changes


def test_a_compacted_topic_that_ends_with_an_older_state_is_found(history):
    first = next(
        record
        for record in history.log(Topic.MEMORY_CHANGES)
        if (event := event_of(record)) is not None
        and event.data["sequence"] == 1
        and b"counter-" in (record.key or b"")
    )
    history.logs[Topic.MEMORY_CHANGES].append(first)

    found(history, "published_stale")


def test_a_stored_outcome_of_a_command_that_never_was_is_found(history):
    row = history.outcomes[3]
    history.outcomes.append(row._replace(command_key=UUID(int=7)))

    found(history, "outcome_of_nothing")


def test_a_conflict_event_with_the_key_of_another_item_is_found(history):
    log = history.logs[Topic.MEMORY_CONFLICTS]
    log[0] = replace(log[0], key=b"default/shared/-/case/hot/another")

    found(history, "conflict_wrong")


def test_a_write_that_says_it_saw_what_its_run_did_not_see_is_found(history):
    write = next(
        event
        for record in history.log(Topic.MEMORY_COMMANDS)
        if (event := event_of(record)) is not None and event.subject and event.data.get("read_version")
    )
    rewrite(history, Topic.MEMORY_COMMANDS, write.id, lambda data: data.update(read_version=None))

    found(history, "read_version_wrong")
