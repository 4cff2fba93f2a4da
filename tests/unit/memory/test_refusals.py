"""What the memory's rules refuse, each with a reason."""

from datetime import timedelta
from decimal import Decimal

import pytest

from schemas.activities import ActivityFailed
from schemas.envelope import Event
from schemas.errors import Rejection
from schemas.exact_json import JsonValue
from schemas.limits import DEFAULT_LIMITS
from tests.support.memory_store import ADDRESS, RULES, START, Tables, memory_event
from workers.logic.memory import commands
from workers.logic.memory.commands import Broken, understand
from workers.logic.memory.conversations import MAX_RECORD_BYTES, Conversation, Listing, conversation_at, listed
from workers.logic.memory.conversions import BUILT_IN
from workers.logic.memory.items import Item
from workers.logic.memory.retention import retention_of
from workers.logic.memory.types import TypeRegistry, json_schema_check
from workers.logic.memory.updates import updated


def read(data: dict[str, JsonValue]) -> Event:
    """A read command with exactly these fields."""
    return Event(id="r", source="/test", type="memory.read", subject="run-1", data=data)


#: More digits than a sum may have.
WIDE = 10**4000


def test_only_what_may_write_needs_a_row_and_only_what_may_change_is_locked() -> None:
    write = understand(memory_event("memory.write", value="v", type="String"), RULES)
    forget = understand(memory_event("memory.forget"), RULES)
    read = understand(memory_event("memory.read", type="String"), RULES)

    assert [command.needs_row for command in (write, forget, read)] == [True, False, False]
    assert [command.may_change for command in (write, forget, read)] == [True, True, False]


def test_data_of_another_kind_is_no_command() -> None:
    data = ActivityFailed(activity_id="a", error="x")

    with pytest.raises(AssertionError, match="is no command"):
        commands._address_of("default", data)
    with pytest.raises(AssertionError, match="is no command"):
        commands._request_of("default", data, RULES)


@pytest.mark.parametrize(
    "data",
    [
        {"scope": "elsewhere", "key": "k", "subject": "workflow-global"},
        {"scope": "shared", "key": "k", "subject": "nobody"},
        {"scope": "shared", "key": 7, "subject": "workflow-global"},
        {"scope": "shared", "key": "k", "subject": {"kind": "p"}},
    ],
)
def test_a_broken_command_that_names_no_item_has_no_address(data: dict[str, JsonValue]) -> None:
    command = understand(read(data), RULES)

    assert isinstance(command.request, Broken)
    assert command.address is None


def test_a_broken_command_that_names_its_item_says_which() -> None:
    data: dict[str, JsonValue] = {"scope": "shared", "key": "k", "subject": "workflow-global", "type": 7}

    assert understand(read(data), RULES).address == "default/shared/-/-/-/k"


def test_a_broken_command_without_an_address_has_an_outcome() -> None:
    tables = Tables()

    (decision,) = tables.decide(read({"scope": "elsewhere"}))

    assert decision.outcome_type == "memory.rejected"


def test_a_record_has_a_largest_size() -> None:
    record = Conversation("2026-11-30T00:00:00Z", [{"role": "user", "content": "x" * MAX_RECORD_BYTES}])

    with pytest.raises(Rejection) as refused:
        record.body()

    assert refused.value.reason == "value_too_large"


def item(type_name: str, *, days: int = 1) -> Item:
    return Item(
        "default/workflow/w/conversation/c/messages",
        1,
        type=type_name,
        value=b'{"created_at":"t","messages":[]}',
        changed_at=START,
        expires_at=START + timedelta(days=days),
    )


def test_a_value_of_another_type_is_no_record() -> None:
    with pytest.raises(Rejection) as refused:
        conversation_at(item("String"), START)

    assert refused.value.reason == "type_mismatch"


def test_a_listing_passes_over_what_is_no_record_or_has_expired() -> None:
    found = listed(
        Listing([item("String"), item("conversation", days=-1)], 2),
        limit=None,
        sort_order="asc",
        role=None,
        now=START,
        max_bytes=1000,
    )

    assert found["memories"] == []


@pytest.mark.parametrize(
    ("stored", "wanted", "value"),
    [
        ("Integer", "String", True),
        ("String", "Integer", 7),
        ("String", "Integer", "007"),
        ("String", "Integer", "1.5"),
        ("String", "Boolean", "yes"),
        ("String", "Date", "30.11.2026"),
        ("String", "DateTime", "2026-11-30"),
    ],
)
def test_a_conversion_says_what_it_cannot_convert(stored: str, wanted: str, value: JsonValue) -> None:
    with pytest.raises(ValueError, match="it is n"):
        BUILT_IN[stored, wanted](value)


@pytest.mark.parametrize(
    ("stored", "wanted", "value", "converted"),
    [
        ("Decimal", "String", Decimal("1.50"), "1.50"),
        ("Boolean", "String", True, "true"),
        ("Boolean", "String", False, "false"),
        ("String", "Integer", " 42 ", 42),
        ("String", "Decimal", "1.50", Decimal("1.50")),
        ("String", "Boolean", "true", True),
        ("String", "Date", "2026-11-30", "2026-11-30"),
        ("String", "DateTime", "2026-11-30T10:00:00+02:00", "2026-11-30T10:00:00+02:00"),
        ("DateTime", "Date", "2026-11-30T23:30:00-05:00", "2026-11-30"),
        ("Date", "DateTime", "2026-11-30", "2026-11-30T00:00:00Z"),
        ("Duration", "String", "PT5M", "PT5M"),
    ],
)
def test_a_conversion_gives_the_same_value_in_another_type(
    stored: str, wanted: str, value: JsonValue, converted: JsonValue
) -> None:
    assert BUILT_IN[stored, wanted](value) == converted


def test_a_list_of_lists_is_converted_to_its_depth_or_refused() -> None:
    types = TypeRegistry({}, BUILT_IN)

    assert types.read_as([[1], [2]], "Integer[][]", "String[][]") == ([["1"], ["2"]], "Integer[][]")
    with pytest.raises(Rejection) as refused:
        types.read_as([1], "Integer[][]", "String[][]")
    assert refused.value.reason == "conversion_failed"


@pytest.mark.parametrize(
    ("ttl", "unit"),
    [(0, "days"), (36526, "days"), (True, "days"), (5, "weeks"), (5, None), (None, "days"), ("keep", "days")],
)
def test_a_retention_that_cannot_be_meant_is_refused(ttl: object, unit: object) -> None:
    with pytest.raises(Rejection) as refused:
        retention_of(ttl, unit, DEFAULT_LIMITS)  # type: ignore[arg-type]

    assert refused.value.reason == "ttl_invalid"


def test_a_schema_that_is_none_is_refused_when_it_is_registered() -> None:
    with pytest.raises(ValueError, match="not a JSON Schema"):
        json_schema_check({"type": "no such type"})


def test_a_check_that_cannot_be_made_is_a_problem_of_the_value() -> None:
    check = json_schema_check({"$ref": "https://example.invalid/schema"})

    problem = check({})

    assert problem is not None
    assert problem.startswith("cannot be checked")


def test_a_truth_is_no_integer_of_a_schema_and_a_whole_decimal_is() -> None:
    check = json_schema_check({"type": "integer"})

    assert check(Decimal("1.0")) is None
    assert check(True) is not None


@pytest.mark.parametrize(
    ("operation", "current", "operand"),
    [("increment", 1, "x"), ("increment", "x", 1), ("increment", WIDE, 1), ("max", 1, "x"), ("min", True, 1)],
)
def test_an_update_that_makes_no_sense_is_refused(operation: str, current: JsonValue, operand: JsonValue) -> None:
    with pytest.raises(Rejection):
        updated(operation, current, operand, type_name="Json", max_items=None)  # type: ignore[arg-type]


def test_instants_are_ordered_by_time_and_not_by_spelling() -> None:
    early, late = "2026-11-30T12:00:00+02:00", "2026-11-30T11:00:00Z"

    assert updated("max", early, late, type_name="DateTime", max_items=None) == late


def test_texts_are_ordered_by_their_code_points() -> None:
    assert updated("min", "b", "a", type_name="String", max_items=None) == "a"


def test_a_record_of_which_nothing_fits_is_left_out() -> None:
    found = listed(Listing([item("conversation")], 1), limit=None, sort_order="asc", role=None, now=START, max_bytes=10)

    assert found["memories"] == []
    assert found["truncated"] is True


def test_a_refusal_names_its_item() -> None:
    """A run's failed node shows the message alone."""
    tables = Tables()
    tables.say("memory.write", type="Decimal", value=1)

    for outcome in (
        tables.say("memory.write", type="Integer", value="one"),
        tables.say("memory.read", type="Integer"),
        tables.say("memory.write", type="Integer", value=1, conditional=True),
    ):
        assert outcome[0] == "memory.rejected"
        assert str(outcome[1]["message"]).startswith(f"{ADDRESS}: ")
