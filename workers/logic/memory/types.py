"""The types of values: primitives, Json, registered object types, and lists `T[]`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import jsonschema
from jsonschema.exceptions import best_match
from jsonschema.protocols import Validator
from referencing import Registry
from referencing.exceptions import Unresolvable

from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue, Literal, dumps, loads

#: Returns what is wrong with a value, or None.
Check = Callable[[JsonValue], str | None]
#: Returns the value in another type; raises `ValueError` when this value has no such form.
Convert = Callable[[JsonValue], JsonValue]

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_DATE_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})")
#: ISO 8601: weeks alone, or years to seconds, at least one of them; a fraction in the seconds.
_DURATION = re.compile(
    r"-?P(?:\d+W|(?=[\dT])(?:\d+Y)?(?:\d+M)?(?:\d+D)?(?:T(?=\d)(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d+)?S)?)?)"
)
_INTEGER = re.compile(r"-?\d+")
_SHOWN_CHARACTERS = 60
_MAX_LIST_DEPTH = 8


def number_text(value: int | Decimal) -> str:
    """Return a number as it was written."""
    return value.text if isinstance(value, Literal) else str(value)


def is_number(value: JsonValue) -> bool:
    """Tell whether a value is a number; true and false are none."""
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def is_integer(value: JsonValue) -> bool:
    """Tell whether a value is a number written without fraction and exponent, however long."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, Decimal) and _INTEGER.fullmatch(number_text(value)) is not None)


def is_date(value: JsonValue) -> bool:
    """Tell whether a value is a day of the calendar, `2026-02-28`."""
    if not isinstance(value, str) or _DATE.fullmatch(value) is None:
        return False
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return True


def is_date_time(value: JsonValue) -> bool:
    """Tell whether a value is an instant of RFC 3339, with its offset."""
    if not isinstance(value, str) or _DATE_TIME.fullmatch(value) is None:
        return False
    try:
        instant(value)
    except ValueError:
        return False
    return True


def instant(text: str) -> tuple[datetime, str]:
    """Return what orders instants: the second, and the digits after it, which may be more than a datetime holds.

    Raises `ValueError` for a day or a time that does not exist.
    """
    whole, offset = (text[:-1], "+00:00") if text[-1] in "Zz" else (text[:-6], text[-6:])
    second, _, fraction = whole.partition(".")
    return datetime.fromisoformat(second + offset), fraction.rstrip("0")


def is_duration(value: JsonValue) -> bool:
    """Tell whether a value is a duration of ISO 8601, `PT48H`."""
    return isinstance(value, str) and _DURATION.fullmatch(value) is not None


def _primitive(test: Callable[[JsonValue], bool], what: str) -> Check:
    return lambda value: None if test(value) else f"is not {what}"


PRIMITIVES: Final[Mapping[str, Check]] = MappingProxyType(
    {
        "Boolean": _primitive(lambda value: isinstance(value, bool), "true or false"),
        "Integer": _primitive(is_integer, "a whole number without fraction or exponent"),
        "Decimal": _primitive(is_number, "a number"),
        "String": _primitive(lambda value: isinstance(value, str), "a text"),
        "Date": _primitive(is_date, "a day such as 2026-02-28"),
        "DateTime": _primitive(is_date_time, "an instant with its offset, such as 2026-02-28T10:00:00Z"),
        "Duration": _primitive(is_duration, "an ISO 8601 duration such as PT48H"),
        "Json": lambda _: None,
    }
)
#: stored type -> types that read it as it is, besides itself and Json.
_WIDER: Final[Mapping[str, frozenset[str]]] = MappingProxyType({"Integer": frozenset({"Decimal"})})


def json_schema_check(schema: JsonObject) -> Check:
    """Return the check of an object type that a JSON Schema describes. Raises `ValueError` for a wrong schema."""
    try:
        _ExactValidator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ValueError(f"not a JSON Schema: {error.message}") from error
    # An empty registry: a schema that refers to the network is not fetched.
    validator = _ExactValidator(schema, registry=Registry(), format_checker=jsonschema.FormatChecker())

    def problem(value: JsonValue) -> str | None:
        try:
            error = best_match(validator.iter_errors(value))  # type: ignore[arg-type] # the stubs know float only
        except (ArithmeticError, RecursionError, Unresolvable) as unable:
            # `multipleOf` of numbers too far apart; a `$ref` that leads nowhere, or to itself.
            return f"cannot be checked: {unable or type(unable).__name__}"
        return None if error is None else f"at {error.json_path}: {error.message}"

    return problem


_ExactValidator: Final[type[Validator]] = jsonschema.validators.extend(  # type: ignore[no-untyped-call] # the stubs leave it untyped
    jsonschema.Draft202012Validator,
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many(
        {"number": lambda _, value: is_number(value), "integer": lambda _, value: _is_whole(value)}
    ),
)


def _is_whole(value: object) -> bool:
    """Tell what JSON Schema calls an integer: 1.0 is one."""
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return False
    return value == Decimal(value).to_integral_value()


@dataclass(frozen=True, slots=True)
class TypeRegistry:
    """The object types and conversions that plug-ins registered, passed in so that the rules stay pure."""

    objects: Mapping[str, Check] = field(default_factory=dict)
    #: (stored type, wanted type), list marks left out -> conversion of one element.
    conversions: Mapping[tuple[str, str], Convert] = field(default_factory=dict)

    def require(self, name: str) -> None:
        """Raise `Rejection` (`type_unknown`) unless values can have this type."""
        base, depth = split_type(name)
        if depth > _MAX_LIST_DEPTH or (base not in PRIMITIVES and base not in self.objects):
            known = ", ".join((*PRIMITIVES, *sorted(self.objects)))
            raise Rejection(
                "type_unknown",
                f"the type {name[:_SHOWN_CHARACTERS]!r} is not known; known are {known}, and lists of them as T[]",
            )

    def check(self, value: JsonValue, name: str) -> None:
        """Raise `Rejection` (`type_unknown`, `type_mismatch`) unless `value` conforms to the type `name`."""
        simple = PRIMITIVES.get(name)
        if simple is not None:
            problem = simple(value)
        else:
            self.require(name)
            base, depth = split_type(name)
            problem = self._problem(value, base, depth, "")
        if problem is not None:
            raise Rejection("type_mismatch", f"the value {_shown(value)} does not conform to {name}: it {problem}")

    def _problem(self, value: JsonValue, base: str, depth: int, place: str) -> str | None:
        if depth == 0:
            problem = (PRIMITIVES.get(base) or self.objects[base])(value)
            return problem if problem is None or not place else f"holds at {place} {_shown(value)}, which {problem}"
        if not isinstance(value, list):
            return "is not a list" if not place else f"holds at {place} no list"
        for index, part in enumerate(value):
            problem = self._problem(part, base, depth - 1, f"{place}[{index}]")
            if problem is not None:
                return problem
        return None

    def read_as(self, stored: JsonValue, stored_type: str, wanted: str) -> tuple[JsonValue, str | None]:
        """Return a stored value as the type `wanted`, and the stored type where that took a conversion.

        Raises `Rejection`: `type_unknown`; `type_mismatch` (no way between the types, or the stored value no longer
        conforms); `conversion_failed`. A reader is never told "missing" instead (seed 003).
        """
        self.require(wanted)
        if is_wider_or_same(stored_type, wanted):
            self.check(stored, wanted)
            return stored, None
        stored_base, stored_depth = split_type(stored_type)
        wanted_base, wanted_depth = split_type(wanted)
        convert = self.conversions.get((stored_base, wanted_base))
        if convert is None or stored_depth != wanted_depth:
            raise Rejection(
                "type_mismatch",
                f"the item holds {stored_type}, which cannot be read as {wanted} and has no conversion to it; "
                "read it as stored, or forget it first",
            )
        try:
            converted = _map_elements(convert, stored, stored_depth)
        except Exception as error:
            # Conversions are plug-ins' code: whatever one raises is about this value, not about the worker.
            raise Rejection(
                "conversion_failed", f"{_shown(stored)} ({stored_type}) cannot be converted to {wanted}: {error}"
            ) from error
        self.check(converted, wanted)
        return converted, stored_type


def _map_elements(convert: Convert, value: JsonValue, depth: int) -> JsonValue:
    if depth == 0:
        return convert(value)
    if not isinstance(value, list):
        raise ValueError("it is not a list")  # noqa: TRY004 - what conversions raise
    return [_map_elements(convert, part, depth - 1) for part in value]


@lru_cache(maxsize=4096)
def split_type(name: str) -> tuple[str, int]:
    """Return the type of the innermost elements, and how many lists lie around them."""
    depth = 0
    while name.endswith("[]"):
        name = name[:-2]
        depth += 1
    return name, depth


@lru_cache(maxsize=4096)
def is_wider_or_same(stored: str, wanted: str) -> bool:
    """Tell whether every value of `stored` is one of `wanted` as it stands."""
    if stored == wanted:
        return True
    stored_base, stored_depth = split_type(stored)
    wanted_base, wanted_depth = split_type(wanted)
    if wanted_base == "Json":
        return stored_depth >= wanted_depth
    return stored_depth == wanted_depth and wanted_base in _WIDER.get(stored_base, frozenset((stored_base,)))


def _shown(value: JsonValue) -> str:
    text = dumps(value).decode()
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def parsed(value: bytes) -> JsonValue:
    """Parse a stored value."""
    return loads(value)
