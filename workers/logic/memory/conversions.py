"""The object type and the conversions that come with the product.

Plug-ins add theirs (entry points `tallystick.types`, `tallystick.conversions`). There is none from Decimal to Integer:
that a Decimal cannot be read as an Integer is part of the contract.
"""

import re
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from types import MappingProxyType
from typing import Final

from schemas.exact_json import JsonValue, loads
from workers.logic.memory.types import (
    Check,
    Convert,
    is_date,
    is_date_time,
    is_integer,
    is_number,
    json_schema_check,
    number_text,
)

_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")


def _number_to_string(value: JsonValue) -> JsonValue:
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        raise ValueError("it is not a number")  # noqa: TRY004 - what conversions raise
    return number_text(value)


def _boolean_to_string(value: JsonValue) -> JsonValue:
    return "true" if value is True else "false"


def _text(value: JsonValue) -> str:
    if not isinstance(value, str):
        raise ValueError("it is not a text")  # noqa: TRY004 - what conversions raise
    return value


def _string_to_number(value: JsonValue) -> JsonValue:
    text = _text(value).strip()
    if _NUMBER.fullmatch(text) is None:
        raise ValueError("it is not a number in JSON's spelling")
    return loads(text.encode())


def _string_to_integer(value: JsonValue) -> JsonValue:
    number = _string_to_number(value)
    if not is_integer(number):
        raise ValueError("it is not a whole number")
    return number


def _string_to_decimal(value: JsonValue) -> JsonValue:
    number = _string_to_number(value)
    assert is_number(number), "the pattern lets nothing else pass"
    return number


def _string_to_boolean(value: JsonValue) -> JsonValue:
    truth = {"true": True, "false": False}.get(_text(value).strip())
    if truth is None:
        raise ValueError("it is neither true nor false")
    return truth


def _string_to_date(value: JsonValue) -> JsonValue:
    if not is_date(value):
        raise ValueError("it is not a day such as 2026-02-28")
    return value


def _string_to_date_time(value: JsonValue) -> JsonValue:
    if not is_date_time(value):
        raise ValueError("it is not an instant with its offset")
    return value


def _date_time_to_date(value: JsonValue) -> JsonValue:
    """Return the day on the clock of the instant's own offset, as its writer saw it."""
    return date.fromisoformat(_text(value)[:10]).isoformat()


def _quantity_to_decimal(value: JsonValue) -> JsonValue:
    """Return a quantity's number, digit for digit; its unit is lost, as the reader asked for."""
    number = value.get("value") if isinstance(value, dict) else None
    if not is_number(number):
        raise ValueError("it has no number as its value")
    return number


def _date_to_date_time(value: JsonValue) -> JsonValue:
    return f"{_text(value)}T00:00:00Z"


BUILT_IN: Final[Mapping[tuple[str, str], Convert]] = MappingProxyType(
    {
        ("Integer", "String"): _number_to_string,
        ("Decimal", "String"): _number_to_string,
        ("Boolean", "String"): _boolean_to_string,
        ("Date", "String"): _text,
        ("DateTime", "String"): _text,
        ("Duration", "String"): _text,
        ("String", "Integer"): _string_to_integer,
        ("String", "Decimal"): _string_to_decimal,
        ("String", "Boolean"): _string_to_boolean,
        ("String", "Date"): _string_to_date,
        ("String", "DateTime"): _string_to_date_time,
        ("DateTime", "Date"): _date_time_to_date,
        ("Date", "DateTime"): _date_to_date_time,
        ("Quantity", "Decimal"): _quantity_to_decimal,
    }
)
#: The object type that comes with the product; a plug-in of the same name replaces it.
BUILT_IN_OBJECTS: Final[Mapping[str, Check]] = MappingProxyType(
    {
        "Quantity": json_schema_check(
            {
                "type": "object",
                "required": ["value"],
                "properties": {"value": {"type": "number"}, "unit": {"type": "string"}},
            }
        )
    }
)
