from decimal import Decimal

import pytest

from schemas.errors import Rejection
from schemas.exact_json import JsonValue
from tests.support.memory_store import Tables
from workers.logic.memory.commands import Rules
from workers.logic.memory.conversions import BUILT_IN
from workers.logic.memory.types import TypeRegistry, is_wider_or_same, json_schema_check

OBSERVATION = {
    "type": "object",
    "required": ["code", "value"],
    "properties": {"code": {"type": "string"}, "value": {"type": "number", "minimum": 0}, "count": {"type": "integer"}},
}
REGISTRY = TypeRegistry({"Observation": json_schema_check(OBSERVATION)}, BUILT_IN)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (True, "Boolean"),
        (1, "Integer"),
        (Decimal(12345678901234567890), "Integer"),
        (Decimal("1.5"), "Decimal"),
        (1, "Decimal"),
        ("", "String"),
        ("2024-02-29", "Date"),
        ("2026-11-30T12:00:00Z", "DateTime"),
        ("2026-11-30T12:00:00.123456789+02:00", "DateTime"),
        ("PT48H", "Duration"),
        ("P1Y2M3DT4H5M6.5S", "Duration"),
        ("P2W", "Duration"),
        (None, "Json"),
        ({"a": [1]}, "Json"),
        ([], "Integer[]"),
        ([[1], []], "Integer[][]"),
        ({"code": "crea", "value": Decimal("26.5"), "count": Decimal("2.0")}, "Observation"),
        ([{"code": "crea", "value": 1}], "Observation[]"),
    ],
)
def test_a_value_of_its_type_is_accepted(value: JsonValue, name: str) -> None:
    REGISTRY.check(value, name)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (1, "Boolean"),
        (True, "Integer"),
        (Decimal("1.0"), "Integer"),
        ("1", "Decimal"),
        (False, "Decimal"),
        (None, "String"),
        ("2026-02-29", "Date"),
        ("2026-1-1", "Date"),
        ("2026-11-30T12:00:00", "DateTime"),
        ("2026-11-30T25:00:00Z", "DateTime"),
        ("P", "Duration"),
        ("PT", "Duration"),
        ("48h", "Duration"),
        (1, "Integer[]"),
        ([1, "2"], "Integer[]"),
        ({"code": "crea"}, "Observation"),
        ({"code": "crea", "value": -1}, "Observation"),
        ({"code": "crea", "value": True}, "Observation"),
    ],
)
def test_a_value_of_another_type_is_refused(value: JsonValue, name: str) -> None:
    with pytest.raises(Rejection) as refused:
        REGISTRY.check(value, name)
    assert refused.value.reason == "type_mismatch"


@pytest.mark.parametrize("name", ["Nothing", "integer", "Integer[", "[]", "Json" + "[]" * 9])
def test_an_unknown_type_is_refused_with_what_is_known(name: str) -> None:
    with pytest.raises(Rejection, match="known are Boolean") as refused:
        REGISTRY.check(1, name)
    assert refused.value.reason == "type_unknown"


def test_a_refusal_names_the_place_in_a_list() -> None:
    with pytest.raises(Rejection, match=r"at \[1\] \"x\""):
        REGISTRY.check([1, "x"], "Integer[]")


@pytest.mark.parametrize(
    ("stored", "wanted", "wider"),
    [
        ("Integer", "Integer", True),
        ("Integer", "Decimal", True),
        ("Decimal", "Integer", False),
        ("Integer", "Json", True),
        ("Json", "Integer", False),
        ("Integer[]", "Decimal[]", True),
        ("Integer[]", "Json", True),
        ("Integer[]", "Json[]", True),
        ("Integer", "Json[]", False),
        ("Observation", "Json", True),
    ],
)
def test_only_wider_types_read_a_value_as_it_stands(stored: str, wanted: str, *, wider: bool) -> None:
    assert is_wider_or_same(stored, wanted) is wider


def test_an_integer_is_read_as_a_decimal_as_it_stands() -> None:
    tables = Tables()
    tables.say("memory.write", type="Integer", value=5)

    outcome = tables.say("memory.read", type="Decimal")

    assert (outcome[0], outcome[1]["value"], outcome[1]["type"]) == ("memory.found", 5, "Decimal")
    assert "converted_from" not in outcome[1]


def test_a_decimal_read_as_an_integer_fails_and_is_not_called_missing() -> None:
    tables = Tables()
    tables.say("memory.write", type="Decimal", value=Decimal("1.0"))

    outcome = tables.say("memory.read", type="Integer")

    assert (outcome[0], outcome[1]["code"]) == ("memory.rejected", "type_mismatch")


@pytest.mark.parametrize(
    ("stored_type", "stored", "wanted", "value"),
    [
        ("Integer", 5, "String", "5"),
        ("Decimal", Decimal("100.00"), "String", "100.00"),
        ("Boolean", True, "String", "true"),
        ("String", "5", "Integer", 5),
        ("String", "1.50", "Decimal", Decimal("1.50")),
        ("String", "false", "Boolean", False),
        ("DateTime", "2026-11-30T23:30:00-05:00", "Date", "2026-11-30"),
        ("Date", "2026-11-30", "DateTime", "2026-11-30T00:00:00Z"),
        ("String[]", ["1", "2"], "Integer[]", [1, 2]),
        ("Integer[][]", [[1], []], "String[][]", [["1"], []]),
    ],
)
def test_a_registered_conversion_is_used_element_by_element(
    stored_type: str, stored: JsonValue, wanted: str, value: JsonValue
) -> None:
    tables = Tables()
    tables.say("memory.write", type=stored_type, value=stored)

    outcome = tables.say("memory.read", type=wanted)

    assert (outcome[0], outcome[1]["value"], outcome[1]["converted_from"]) == ("memory.found", value, stored_type)


@pytest.mark.parametrize("text", ["x", "1.5", "", "٣", "1_000", "0x10"])
def test_a_conversion_that_fails_is_a_refusal(text: str) -> None:
    tables = Tables()
    tables.say("memory.write", type="String", value=text)

    outcome = tables.say("memory.read", type="Integer")

    assert (outcome[0], outcome[1]["code"]) == ("memory.rejected", "conversion_failed")


def test_a_stored_value_that_no_longer_conforms_is_a_refusal() -> None:
    tables = Tables(rules=Rules(types=REGISTRY))
    tables.say("memory.write", type="Observation", value={"code": "crea", "value": 1})
    stricter = json_schema_check({**OBSERVATION, "required": ["code", "value", "unit"]})  # type: ignore[arg-type]
    tables.rules = Rules(types=TypeRegistry({"Observation": stricter}))

    outcome = tables.say("memory.read", type="Observation")

    assert (outcome[0], outcome[1]["code"]) == ("memory.rejected", "type_mismatch")


def test_a_value_that_does_not_conform_is_not_stored() -> None:
    tables = Tables(rules=Rules(types=REGISTRY))

    outcome = tables.say("memory.write", type="Observation", value={"code": 1})

    assert (outcome[0], outcome[1]["code"]) == ("memory.rejected", "type_mismatch")
    assert tables.items == {}


def test_a_schema_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="not a JSON Schema"):
        json_schema_check({"type": "objekt"})


def test_a_schema_that_refers_to_itself_alone_refuses_the_value() -> None:
    problem = json_schema_check({"$ref": "#"})(1)

    assert problem is not None
    assert "cannot be checked" in problem
