"""Two values and an operator -> true, false, or a refusal to compare what has no such comparison.

Null, which is also what an absent variable gives, is no mistake: it is equal to null only, in no order
to anything, and contains nothing. The table of operators is in docs/references.md.
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from enum import StrEnum

from schemas.errors import Rejection
from schemas.exact_json import JsonValue, dumps
from workers.logic.variables.templates import as_text

#: JSON's numbers, so that codes like `007`, `1_000` or `NaN` stay texts.
_NUMERIC_TEXT = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_SHOWN_CHARACTERS = 60


class Operator(StrEnum):
    """The names of the contract."""

    EXISTS = "exists"
    NOT_EXISTS = "not_exists"
    EQUALS = "equals"
    NOT_EQUALS = "not_equals"
    GREATER_THAN = "greater_than"
    GREATER_THAN_OR_EQUAL = "greater_than_or_equal"
    LESS_THAN = "less_than"
    LESS_THAN_OR_EQUAL = "less_than_or_equal"
    CONTAINS = "contains"
    NOT_CONTAINS = "not_contains"
    STARTS_WITH = "starts_with"
    ENDS_WITH = "ends_with"
    IN = "in"
    NOT_IN = "not_in"
    IS_EMPTY = "is_empty"
    IS_NOT_EMPTY = "is_not_empty"

    @property
    def unary(self) -> bool:
        """Tell whether the operator looks at its left side only."""
        return self in _UNARY


_UNARY = frozenset({Operator.EXISTS, Operator.NOT_EXISTS, Operator.IS_EMPTY, Operator.IS_NOT_EMPTY})
SYMBOLS: Mapping[str, Operator] = {
    "==": Operator.EQUALS,
    "!=": Operator.NOT_EQUALS,
    ">=": Operator.GREATER_THAN_OR_EQUAL,
    "<=": Operator.LESS_THAN_OR_EQUAL,
    ">": Operator.GREATER_THAN,
    "<": Operator.LESS_THAN,
}


def compare(left: JsonValue, operator: Operator, right: JsonValue = None) -> bool:
    """Apply an operator. Raises `Rejection` (`comparison_invalid`) that shows both values."""
    result = _RULES[operator](left, right)
    if result is None:
        raise Rejection(
            "comparison_invalid",
            f"{_shown(left)} {operator} {_shown(right)} makes no sense: {_kind(left)} and {_kind(right)} have no such "
            "comparison; compare a part of the value, or check its kind before",
        )
    return result


def equal(left: JsonValue, right: JsonValue) -> bool:
    """Compare by content: numbers exactly (`1.0` is `1`), and a number with a numeric text as numbers."""
    numbers = _numbers(left, right)
    return _same(left, right) if numbers is None else numbers[0] == numbers[1]


def _same(left: JsonValue, right: JsonValue) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(part, right[key]) for key, part in left.items())
    return left == right


def _numbers(left: JsonValue, right: JsonValue) -> tuple[int | Decimal, int | Decimal] | None:
    """Give both sides as numbers when one is a number and the other is one, or spells one."""
    if not (_is_number(left) or _is_number(right)):
        return None
    first, second = _number(left), _number(right)
    return None if first is None or second is None else (first, second)


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _number(value: JsonValue) -> int | Decimal | None:
    if isinstance(value, str) and _NUMERIC_TEXT.fullmatch(value):
        try:
            return Decimal(value)
        except InvalidOperation:  # an exponent of twenty digits
            return None
    return value if isinstance(value, int | Decimal) and not isinstance(value, bool) else None


def _ordered(holds: Callable[[int], bool]) -> Callable[[JsonValue, JsonValue], bool | None]:
    def rule(left: JsonValue, right: JsonValue) -> bool | None:
        if left is None or right is None:
            return False
        numbers = _numbers(left, right)
        if numbers is not None:
            return holds((numbers[0] > numbers[1]) - (numbers[0] < numbers[1]))
        if isinstance(left, str) and isinstance(right, str):
            return holds((left > right) - (left < right))
        return None

    return rule


def _contains(whole: JsonValue, part: JsonValue) -> bool | None:
    if whole is None:
        return False
    if isinstance(whole, list):
        return any(equal(item, part) for item in whole)
    if part is None:
        return False
    text = _text(part)
    if isinstance(whole, dict):
        return None if text is None else text in whole
    return _of_texts(lambda left, right: right in left)(whole, part)


def _of_texts(holds: Callable[[str, str], bool]) -> Callable[[JsonValue, JsonValue], bool | None]:
    def rule(left: JsonValue, right: JsonValue) -> bool | None:
        if left is None or right is None:
            return False
        first, second = _text(left), _text(right)
        return None if first is None or second is None else holds(first, second)

    return rule


def _text(value: JsonValue) -> str | None:
    """Give a text, or a number as it is written."""
    return as_text(value) if isinstance(value, str) or _is_number(value) else None


def _is_empty(value: JsonValue) -> bool:
    return value is None or value in ("", [], {})


def _negated(
    rule: Callable[[JsonValue, JsonValue], bool | None],
) -> Callable[[JsonValue, JsonValue], bool | None]:
    def negated(left: JsonValue, right: JsonValue) -> bool | None:
        result = rule(left, right)
        return None if result is None else not result

    return negated


def _swapped(left: JsonValue, right: JsonValue) -> bool | None:
    return _contains(right, left)


_RULES: Mapping[Operator, Callable[[JsonValue, JsonValue], bool | None]] = {
    Operator.EXISTS: lambda left, _: left is not None,
    Operator.NOT_EXISTS: lambda left, _: left is None,
    Operator.EQUALS: equal,
    Operator.NOT_EQUALS: _negated(equal),
    Operator.GREATER_THAN: _ordered(lambda order: order > 0),
    Operator.GREATER_THAN_OR_EQUAL: _ordered(lambda order: order >= 0),
    Operator.LESS_THAN: _ordered(lambda order: order < 0),
    Operator.LESS_THAN_OR_EQUAL: _ordered(lambda order: order <= 0),
    Operator.CONTAINS: _contains,
    Operator.NOT_CONTAINS: _negated(_contains),
    Operator.STARTS_WITH: _of_texts(str.startswith),
    Operator.ENDS_WITH: _of_texts(str.endswith),
    Operator.IN: _swapped,
    Operator.NOT_IN: _negated(_swapped),
    Operator.IS_EMPTY: lambda left, _: _is_empty(left),
    Operator.IS_NOT_EMPTY: lambda left, _: not _is_empty(left),
}


def _kind(value: JsonValue) -> str:
    if isinstance(value, str):
        return "a text"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else "a number"


def _shown(value: JsonValue) -> str:
    text = dumps(value).decode()
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
