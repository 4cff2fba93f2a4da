"""Versions, conditions, expiry: one item over time (seed 003)."""

from decimal import Decimal

import pytest

from schemas.exact_json import loads
from tests.support.memory_store import ADDRESS, START, Tables, memory_event
from workers.logic.memory.commands import understand
from workers.logic.memory.plan import Seen


def test_versions_start_at_one_and_grow_by_one() -> None:
    tables = Tables()

    versions = [tables.say("memory.write", type="Integer", value=number)[1]["version"] for number in range(3)]

    assert versions == [1, 2, 3]


def test_of_two_writes_that_expect_nothing_the_first_wins() -> None:
    """dapr/components-contrib#994."""
    tables = Tables()

    first = tables.say("memory.write", "run-1", type="String", value="value-1", expected_version=0)
    conflict = tables.conflict("memory.write", "run-2", type="String", value="value-2", expected_version=0)

    assert first[0] == "memory.written"
    assert conflict is not None
    assert conflict["current"]["writer"] == {"execution_id": "run-1"}
    assert conflict["attempted"]["writer"] == {"execution_id": "run-2"}
    assert conflict["resolution"] == "rejected"
    assert tables.say("memory.read", type="String")[1]["value"] == "value-1"


def test_a_refused_write_says_what_version_there_is() -> None:
    tables = Tables()
    tables.say("memory.write", type="Integer", value=1)

    outcome = tables.say("memory.write", type="Integer", value=2, expected_version=7)

    assert outcome == ("memory.conflicted", {"expected_version": 7, "current_version": 1})


def test_an_expired_item_counts_as_nothing_before_it_is_purged() -> None:
    """mattermost#13656."""
    tables = Tables()
    tables.say("memory.write", type="Integer", value=1, ttl=1, ttl_unit="seconds")
    tables.later(seconds=1)

    read = tables.say("memory.read", type="Integer")
    stale = tables.say("memory.write", type="Integer", value=2, expected_version=1)
    fresh = tables.say("memory.write", type="Integer", value=3, expected_version=0)

    assert read == ("memory.missing", {"version": 0})
    assert stale == ("memory.conflicted", {"expected_version": 1, "current_version": 0})
    assert (fresh[0], fresh[1]["version"]) == ("memory.written", 2)


def test_an_item_lives_to_the_second_of_its_retention() -> None:
    tables = Tables()
    tables.say("memory.write", type="Integer", value=1, ttl=60, ttl_unit="seconds")

    tables.later(seconds=59)
    assert tables.say("memory.read", type="Integer")[0] == "memory.found"
    tables.later(seconds=1)
    assert tables.say("memory.read", type="Integer")[0] == "memory.missing"


def test_a_write_without_retention_expires_after_thirty_days_whatever_was_before() -> None:
    """nats-server#6959."""
    tables = Tables()
    tables.say("memory.write", type="Integer", value=1, ttl=60, ttl_unit="seconds")

    outcome = tables.say("memory.write", type="Integer", value=2, expected_version=1)

    assert outcome[1]["expires_at"] == "2026-12-30T12:00:00.000000Z"


def test_keep_leaves_the_expiry_as_it_was() -> None:
    tables = Tables()
    tables.say("memory.write", type="Integer", value=1, ttl=60, ttl_unit="seconds")
    tables.later(seconds=30)

    outcome = tables.say("memory.write", type="Integer", value=2, ttl="keep")

    assert outcome[1]["expires_at"] == "2026-11-30T12:01:00.000000Z"


def test_keep_without_anything_to_keep_is_the_default() -> None:
    outcome = Tables().say("memory.write", type="Integer", value=2, ttl="keep")

    assert outcome[1]["expires_at"] == "2026-12-30T12:00:00.000000Z"


def test_forgetting_takes_no_version_and_the_count_goes_on() -> None:
    tables = Tables()
    tables.say("memory.write", type="Integer", value=1)

    forgotten = tables.say("memory.forget")
    read = tables.say("memory.read", type="Integer")
    again = tables.say("memory.write", type="Integer", value=2, expected_version=0)

    assert forgotten == ("memory.forgotten", {"existed": True})
    assert read == ("memory.missing", {"version": 0})
    assert again[1]["version"] == 2
    assert tables.items[ADDRESS].sequence == 3


def test_a_reader_from_before_a_forget_cannot_win_by_an_old_number() -> None:
    """No ABA: version 1 never comes back."""
    tables = Tables()
    tables.say("memory.write", type="Integer", value=1)
    tables.say("memory.forget")
    tables.say("memory.write", type="Integer", value=1)

    outcome = tables.say("memory.write", type="Integer", value=9, expected_version=1)

    assert outcome == ("memory.conflicted", {"expected_version": 1, "current_version": 2})


def test_forgetting_nothing_changes_nothing() -> None:
    tables = Tables()

    assert tables.say("memory.forget") == ("memory.forgotten", {"existed": False})
    assert tables.items == {}


def test_a_conditional_forget_removes_only_the_version_it_names() -> None:
    tables = Tables()
    tables.say("memory.write", type="Integer", value=1)
    tables.say("memory.write", type="Integer", value=2)

    refused = tables.say("memory.forget", expected_version=1)
    done = tables.say("memory.forget", expected_version=2)

    assert refused == ("memory.conflicted", {"expected_version": 1, "current_version": 2})
    assert done == ("memory.forgotten", {"existed": True})


@pytest.mark.parametrize("missing", [{"conditional": True}, {"expected_version": None}, {"expected_version": "  "}])
def test_a_conditional_write_without_its_version_is_refused_never_made_unconditional(missing: dict) -> None:
    tables = Tables()

    outcome = tables.say("memory.write", type="Integer", value=1, **missing)

    assert (outcome[0], outcome[1]["code"]) == ("memory.rejected", "expected_version_required")
    assert tables.items == {}


def test_a_version_that_a_template_left_as_text_counts() -> None:
    tables = Tables()
    tables.say("memory.write", type="Integer", value=1)

    assert tables.say("memory.write", type="Integer", value=2, expected_version=" 1 ")[0] == "memory.written"
    outcome = tables.say("memory.write", type="Integer", value=2, expected_version="one")
    assert outcome[1]["code"] == "expected_version_invalid"


@pytest.mark.parametrize(
    "retention",
    [
        {"ttl": 5},
        {"ttl_unit": "days"},
        {"ttl": 0, "ttl_unit": "days"},
        {"ttl": 36526, "ttl_unit": "days"},
        {"ttl": 36525 * 86400 + 1, "ttl_unit": "seconds"},
        {"ttl": "keep", "ttl_unit": "days"},
    ],
)
def test_a_retention_that_is_half_said_or_out_of_range_is_refused(retention: dict) -> None:
    outcome = Tables().say("memory.write", type="Integer", value=1, **retention)

    assert (outcome[0], outcome[1]["code"]) == ("memory.rejected", "ttl_invalid")


def test_a_hundred_years_is_the_longest_retention() -> None:
    outcome = Tables().say("memory.write", type="Integer", value=1, ttl=36525, ttl_unit="days")

    assert outcome[1]["expires_at"] == "2126-12-01T12:00:00.000000Z"


def test_a_value_is_limited_to_256_kib_with_its_quotes() -> None:
    fits = Tables().say("memory.write", type="String", value="x" * (256 * 1024 - 2))
    over = Tables().say("memory.write", type="String", value="x" * (256 * 1024 - 1))
    wide = Tables().say("memory.write", type="String", value="é" * (128 * 1024))

    assert fits[0] == "memory.written"
    assert over[1]["code"] == wide[1]["code"] == "value_too_large"


@pytest.mark.parametrize("literal", [b"100.00", b"1e5", b"-0", b"12345678901234567890", b"0.1234567890123456789"])
def test_a_number_comes_back_as_it_was_written(literal: bytes) -> None:
    """camunda#12473."""
    tables = Tables()
    tables.say("memory.write", type="Decimal", value=loads(literal))

    assert tables.items[ADDRESS].value == literal
    assert tables.say("memory.read", type="Decimal")[1]["value"] == Decimal(literal.decode())


def test_a_nul_character_is_kept() -> None:
    """kestra#10326."""
    tables = Tables()
    tables.say("memory.write", type="String", value="a\x00b")

    assert tables.say("memory.read", type="String")[1]["value"] == "a\x00b"


def test_the_same_command_twice_in_a_batch_has_one_decision() -> None:
    tables = Tables()
    command = understand(memory_event("memory.write", type="Integer", value=1, expected_version=0), tables.rules)

    planned = tables.apply([command, command])

    assert planned.answers[1] is Seen.IN_BATCH
    assert tables.items[ADDRESS].version == 1


def test_the_same_command_later_is_not_decided_again() -> None:
    tables = Tables()
    command = understand(memory_event("memory.write", type="Integer", value=1, expected_version=0), tables.rules)
    tables.apply([command])

    assert tables.apply([command]).answers == [Seen.BEFORE]


@pytest.mark.parametrize("together", [True, False])
def test_an_id_that_comes_again_with_other_content_is_refused(together: bool) -> None:
    tables = Tables()
    one = understand(memory_event("memory.write", "same", type="Integer", value=1), tables.rules)
    other = understand(memory_event("memory.write", "same", type="Integer", value=2), tables.rules)

    answers = (
        [*tables.apply([one, other]).answers]
        if together
        else [*tables.apply([one]).answers, *tables.apply([other]).answers]
    )

    assert answers[1] is Seen.REUSED
    assert tables.items[ADDRESS].value == b"1"


def test_one_batch_decides_as_many_batches_do() -> None:
    events = [
        memory_event("memory.write", type="Integer", value=number, expected_version=number) for number in range(5)
    ]
    whole, single = Tables(), Tables()

    together = [decision.outcome for decision in whole.decide(*events)]
    apart = [single.decide(event)[0].outcome for event in events]

    assert together == apart
    assert whole.items == single.items
    assert whole.versions == single.versions


def test_what_is_forgotten_in_the_batch_that_wrote_it_leaves_no_history() -> None:
    tables = Tables()

    tables.decide(memory_event("memory.write", type="Integer", value=1), memory_event("memory.forget"))

    assert tables.versions == {}
    assert tables.items[ADDRESS].erased_version == 1


def test_the_outcome_tells_when_the_value_was_written() -> None:
    tables = Tables()
    tables.say("memory.write", type="Integer", value=1)
    tables.later(hours=1)

    read = tables.say("memory.read", type="Integer")[1]

    assert read["written_at"] == "2026-11-30T12:00:00.000000Z"
    assert START.isoformat() == "2026-11-30T12:00:00+00:00"
