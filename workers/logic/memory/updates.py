"""Atomic updates: the value stored now and an operand -> the new value."""

from decimal import Context, Decimal, InvalidOperation
from typing import assert_never

from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue, canonical
from schemas.memory import Operation
from workers.logic.memory.diff import MaybeValue, Nothing
from workers.logic.memory.types import instant, is_date_time, is_integer, is_number

#: Sums beyond this many digits are refused: exactness has its price, and a single `1e999999` must not stop a worker.
_MAX_DIGITS = 1000
_EXACT = Context(prec=_MAX_DIGITS + 8, Emax=10**9, Emin=-(10**9))


def updated(
    operation: Operation, current: MaybeValue, operand: JsonValue, *, type_name: str, max_items: int | None
) -> JsonValue:
    """Return the new value. A missing item counts as 0, an empty list, an empty object, or as the operand itself.

    Raises `Rejection`: `operation_invalid`, `number_too_large`.
    """
    match operation:
        case "increment":
            return _sum(0 if isinstance(current, Nothing) else current, operand)
        case "append":
            extended = [*_list(current, operation), operand]
            return extended if max_items is None else extended[-max_items:]
        case "union":
            return _union(_list(current, operation), operand)
        case "max" | "min":
            return _extreme(operation, current, operand, type_name)
        case "merge_patch":
            return merge_patch(current, operand)
        case _:
            assert_never(operation)


def _misfit(operation: Operation, what: str) -> Rejection:
    return Rejection("operation_invalid", f"{operation} does not fit: {what}")


def _sum(current: JsonValue, by: JsonValue) -> JsonValue:
    if not is_number(by):
        raise _misfit("increment", "by is not a number")
    if not is_number(current):
        raise _misfit("increment", "the stored value is not a number")
    if isinstance(current, int) and isinstance(by, int):
        total: int | Decimal = current + by
    else:
        total = _exact_sum(_decimal(current), _decimal(by))
        if is_integer(current) and is_integer(by):
            total = int(total)
    if isinstance(total, int) and abs(total) >= 10**_MAX_DIGITS:
        raise _too_large()
    return total


def _decimal(value: JsonValue) -> Decimal:
    assert isinstance(value, (int, Decimal)), "checked by the caller"
    return Decimal(value)


def _exact_sum(left: Decimal, right: Decimal) -> Decimal:
    """Add without rounding: 0.1 + 0.2 is 0.3, and 100.00 + 1 is 101.00."""
    numbers = [number for number in (left, right) if number]
    lowest = min(int(number.as_tuple().exponent) for number in (left, right))
    highest = max((number.adjusted() for number in numbers), default=0)
    if highest - lowest >= _MAX_DIGITS:
        raise _too_large()
    try:
        return _EXACT.add(left, right)
    except InvalidOperation as error:  # pragma: no cover - the digits were counted
        raise _too_large() from error


def _too_large() -> Rejection:
    return Rejection("number_too_large", f"the sum would need more than {_MAX_DIGITS} digits to be exact")


def _list(current: MaybeValue, operation: Operation) -> list[JsonValue]:
    if isinstance(current, Nothing):
        return []
    if not isinstance(current, list):
        raise _misfit(operation, "the stored value is not a list")
    return current


def _union(current: list[JsonValue], operand: JsonValue) -> JsonValue:
    """Add what is not in the list yet, compared as canonical JSON; one value counts as a list of one."""
    seen = {canonical(part) for part in current}
    union = list(current)
    for part in operand if isinstance(operand, list) else [operand]:
        text = canonical(part)
        if text not in seen:
            seen.add(text)
            union.append(part)
    return union


def _extreme(operation: Operation, current: MaybeValue, operand: JsonValue, type_name: str) -> JsonValue:
    if isinstance(current, Nothing):
        # Compared with itself, so that what has no order is refused at once.
        current = operand
    lesser, greater = (current, operand) if operation == "max" else (operand, current)
    return operand if _is_less(operation, lesser, greater, type_name) else current


def _is_less(operation: Operation, left: JsonValue, right: JsonValue, type_name: str) -> bool:
    """Order numbers by size, instants by time, other texts by their code points."""
    if is_number(left) and is_number(right):
        return _decimal(left) < _decimal(right)
    if isinstance(left, str) and isinstance(right, str):
        if type_name == "DateTime" and is_date_time(left) and is_date_time(right):
            return instant(left) < instant(right)
        return left < right
    raise _misfit(operation, "only two numbers, or two texts, have an order")


def merge_patch(target: MaybeValue, patch: JsonValue) -> JsonValue:
    """Apply a JSON merge patch (RFC 7396): null removes a name, anything but an object replaces."""
    if not isinstance(patch, dict):
        return patch
    merged: JsonObject = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged
