"""The checker finds broken promises of variable stores, dead letters and positions, planted one by one."""

import base64
import dataclasses
from random import Random

from msgspec.structs import replace

from schemas.limits import DEFAULT_LIMITS
from tests.support.checker import check
from tests.support.history import History, event_of
from tests.support.planting import (
    drop,
    found,
    records,
    recovered,
)
from tests.support.simulated import PARTITIONS, simulate
from topics.catalog import Topic
from topics.codec import encode
from topics.keys import partition_of
from topics.records import ReceivedRecord
from workers.variables.table import _total

# -- executions


def in_parts() -> History:
    limits = dataclasses.replace(DEFAULT_LIMITS, step_bytes=0, batch_bytes=3000)
    return simulate(102, commands=30, runs=8, limits=limits).recorded()


def test_runs_whose_events_are_cut_into_many_revisions_pass_too():
    history = in_parts()
    verdict = check(history)

    assert verdict.holds, str(verdict)
    assert sum(b'"part":' in row.body for row in history.revisions) > 5


def test_an_event_whose_rest_was_not_done_is_found():
    history = in_parts()
    cut = next(row for row in history.revisions if b'"rest":' in row.body)
    history.revisions = [
        row for row in history.revisions if row.execution_id != cut.execution_id or row.revision <= cut.revision
    ]

    found(history, "event_lost")


def test_a_missing_revision_is_found(history):
    row = next(row for row in history.revisions if row.revision == 3)
    history.revisions.remove(row)

    found(history, "revision_gap")


def test_a_revision_that_is_there_twice_is_found(history):
    history.revisions.append(next(row for row in history.revisions if row.revision == 2))

    found(history, "revision_duplicated")


def test_an_event_that_was_applied_twice_is_found(history):
    first = next(row for row in history.revisions if row.revision == 2)
    newest = max(
        (row for row in history.revisions if row.execution_id == first.execution_id), key=lambda row: row.revision
    )
    history.revisions.append(first._replace(revision=newest.revision + 1))

    found(history, "revision_duplicated")


def test_a_revision_that_the_model_does_not_make_is_found(history):
    place = next(place for place, row in enumerate(history.revisions) if b'"v/' in row.changes)
    row = history.revisions[place]
    history.revisions[place] = row._replace(changes=row.changes.replace(b'"v/', b'"v/x', 1))

    found(history, "revision_wrong")


def test_a_fork_that_inherited_something_else_is_found(history):
    place, row = next((place, row) for place, row in enumerate(history.revisions) if row.event_key is None)
    history.revisions[place] = row._replace(outgoing=b"[]" if row.outgoing != b"[]" else b"[{}]")

    found(history, "revision_wrong")


def test_events_applied_out_of_order_are_found(history):
    log = history.logs[Topic.EXECUTION_EVENTS]
    partition = partition_of(b"run-1", PARTITIONS)
    first, second = (
        next(
            place
            for place, record in enumerate(log)
            if record.partition == partition
            and (event := event_of(record)) is not None
            and event.id == f"run-1-{number}"
        )
        for number in (2, 3)
    )
    log[first], log[second] = (
        replace(log[first], offset=log[second].offset),
        replace(log[second], offset=log[first].offset),
    )

    found(history, "revision_order")


def test_an_event_that_made_no_revision_is_found(history):
    rows = [row for row in history.revisions if row.execution_id == "run-2"]
    newest = max(rows, key=lambda row: row.revision)
    history.revisions.remove(newest)

    found(history, "event_lost")


def test_a_revision_that_was_not_published_is_found(history):
    dropped = drop(
        history, Topic.VARIABLE_UPDATES, lambda event: event.subject == "run-1" and event.data["revision"] == 2
    )

    assert dropped
    found(history, "published_missing")


def test_an_answer_with_other_bytes_is_found(history):
    record = history.log(Topic.NODE_RESULTS)[0]
    event = event_of(record)
    assert event is not None
    again = replace(event, data={**event.data, "surprise": 1})
    history.logs[Topic.NODE_RESULTS].append(replace(record, value=encode(again)))

    found(history, "published_changed")


def test_answers_that_are_published_in_another_order_are_found(history):
    log = history.logs[Topic.NODE_RESULTS]
    first, second = [place for place, record in enumerate(log) if record.key == b"run-1"][:2]
    log.append(log.pop(first))

    assert first != second
    found(history, "published_order")


def test_a_revision_that_is_published_and_not_committed_is_found(history):
    record = records(history, Topic.VARIABLE_UPDATES, "variables.revised")[0]
    event = event_of(record)
    assert event is not None
    invented = replace(event, id="invented", data={**event.data, "revision": 999})
    history.logs[Topic.VARIABLE_UPDATES].append(replace(record, value=encode(invented)))

    found(history, "published_uncommitted")


# -- the table


def test_a_table_that_passes_for_current_and_is_wrong_is_found(history):
    from workers.variables.table import written_entries

    key, (partition, live) = next(iter(recovered(history).items()))
    live.entries["v/wrong"] = b"1"
    live.checksum = _total(live.entries)
    for entry, value in (("v/wrong", b"1"), ("", live.packed_head())):
        [record] = written_entries(partition, key, [(entry, value)])
        history.logs[Topic.EXECUTIONS_TABLE].append(
            ReceivedRecord(record.topic, partition, 10**6, record.key, record.value)
        )

    found(history, "table_wrong")


def test_a_table_that_is_behind_is_counted_and_no_violation(history):
    log = history.logs[Topic.EXECUTIONS_TABLE]
    key = next(iter(recovered(history)))
    place = max(place for place, record in enumerate(log) if key.execution_id.encode() in (record.key or b""))
    del log[place]

    verdict = check(history)

    assert verdict.holds
    assert verdict.counts["table entries behind"] == 1


# -- dead letters and positions


def test_a_missing_dead_letter_is_found(history):
    history.logs[Topic.DEAD_LETTERS] = []

    found(history, "dead_letter_missing")


def test_a_dead_letter_for_a_good_record_is_found(history):
    letter = history.log(Topic.DEAD_LETTERS)[0]
    event = event_of(letter)
    assert event is not None
    history.logs[Topic.DEAD_LETTERS].append(
        replace(letter, value=encode(replace(event, id="other", data={**event.data, "offset": 1, "partition": 1})))
    )

    found(history, "dead_letter_extra")


def test_a_dead_letter_with_other_bytes_or_code_is_found(history):
    letter = history.log(Topic.DEAD_LETTERS)[0]
    event = event_of(letter)
    assert event is not None
    other = replace(event, data={**event.data, "code": "too_large", "value_base64": base64.b64encode(b"x").decode()})
    history.logs[Topic.DEAD_LETTERS] = [
        replace(record, value=encode(other)) if record.value == letter.value else record
        for record in history.log(Topic.DEAD_LETTERS)
    ]

    verdict = found(history, "dead_letter_wrong")

    assert len([violation for violation in verdict.violations if violation.kind == "dead_letter_wrong"]) == 2


def test_a_dead_letter_without_the_headers_is_found(history):
    letter = history.log(Topic.DEAD_LETTERS)[0]
    event = event_of(letter)
    assert event is not None
    without = encode(replace(event, data={**event.data, "headers": []}))
    history.logs[Topic.DEAD_LETTERS] = [
        replace(record, value=without) if record.value == letter.value else record
        for record in history.log(Topic.DEAD_LETTERS)
    ]

    found(history, "dead_letter_wrong")


def test_an_event_that_kafka_acknowledged_and_no_log_holds_is_found(history):
    history.acknowledged.add((Topic.MEMORY_COMMANDS, b"gone"))

    found(history, "acknowledged_but_lost")


def test_a_position_before_the_end_of_the_log_is_found(history):
    place = next(place for place, position in history.committed.items() if place[0] == "memory" and position)
    history.committed[place] -= 1

    found(history, "position_wrong")


def test_a_history_can_be_kept_and_read_again(history, tmp_path):
    history.save(tmp_path / "history")

    assert History.load(tmp_path / "history") == history


def test_workloads_differ_by_seed_only():
    from tests.support.workload import run_script

    assert run_script("run", Random(3)) == run_script("run", Random(3))
    assert run_script("run", Random(3)) != run_script("run", Random(4))
