"""JSON in which every number comes out as it went in.

A float cannot hold `100.00`, `23843037174560269` in every reader, or `0.1234567890123456789`
(camunda#12473, digdag#916). So numbers are `int` or `Decimal`, never `float`, and a literal that
`Decimal` would print differently (`1e5`, `-0`) keeps its own text.
"""

import json
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Self, TypeAlias, cast

import orjson

JsonValue: TypeAlias = bool | int | Decimal | str | list["JsonValue"] | dict[str, "JsonValue"] | None
JsonObject: TypeAlias = dict[str, JsonValue]

#: Digits that orjson reads without loss: its integers are 64 bits wide.
_SAFE_DIGITS = 18
#: What the search for such numbers sees of a text: which digits they are, or which letters, does not matter to it.
_SHAPES = bytes.maketrans(b"123456789.eE[", b"000000000eee,")
_WHITE_SPACE = b" \t\n\r"
_FRACTION_OR_EXPONENT = b"0e"
_WIDE = b"0" * (_SAFE_DIGITS + 1)
#: What a value follows, white space left out and lists opened by a comma.
_BEFORE_VALUE = (b'":', b",")
#: The digits before a point or exponent, a sign, and what the value follows.
_LONGEST_BEFORE = _SAFE_DIGITS + 1 + max(map(len, _BEFORE_VALUE))
#: After so many of them in vain, the slower parser costs less than to look on.
_LOOK_ALIKES = 1000
_MINUS_ZERO = b"-0"
#: What such a value follows, white space left out.
_MINUS_ZERO_VALUES = (b":-0", b",-0", b"[-0")
#: Brackets needed before the depth is worth counting.
MAX_NESTING = 64


class InvalidJson(ValueError):  # noqa: N818 - reads as a statement about the input
    """The bytes are not JSON that can be kept exactly; `code` says which rule they break."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Literal(Decimal):
    """A number whose text differs from Decimal's own spelling of it."""

    text: str

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, text)
        number.text = text
        return number


#: JSON bytes that are written as they are: a stored value that nobody looked into.
Raw = orjson.Fragment


def _number(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation as error:
        raise InvalidJson("malformed", f"the number {text[:40]} is beyond any exact decimal") from error
    return number if str(number) == text else Literal(text)


def _integer(text: str) -> int | Decimal:
    if len(text) > _SAFE_DIGITS or text == "-0":
        return _number(text)
    return int(text)


_exact = json.JSONDecoder(
    parse_float=cast("Callable[[str], Any]", _number), parse_int=cast("Callable[[str], Any]", _integer)
)


def loads(data: bytes, max_nesting: int = MAX_NESTING) -> JsonValue:
    """Parse UTF-8 JSON exactly.

    Raises `InvalidJson`: `malformed` (syntax, not UTF-8, an unpaired surrogate: kestra#14806),
    `too_deep` (nesting beyond `max_nesting`, 64 levels for what others write).
    """
    if is_deeper(data, max_nesting):
        raise InvalidJson("too_deep", f"the JSON is nested deeper than {max_nesting} levels; flatten it")
    try:
        parsed = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if not _is_json_but_for_size(data):
            raise InvalidJson("malformed", f"not valid JSON: {error}") from error
        return cast("JsonValue", _exact.decode(data.decode()))
    if _needs_exact(data):
        return cast("JsonValue", _exact.decode(data.decode()))
    return cast("JsonValue", parsed)


_STRING_OR_NUMBER = re.compile(
    rb'"(?:[^"\\]|\\.)*"|(?<![0-9.])-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![0-9.eE+-])', re.DOTALL
)


def _is_json_but_for_size(data: bytes) -> bool:
    """Tell whether only numbers beyond a double's range, such as 1e400, kept orjson from reading the bytes."""
    small = _STRING_OR_NUMBER.sub(lambda match: match.group() if match.group().startswith(b'"') else b"1", data)
    try:
        orjson.loads(small)
    except orjson.JSONDecodeError:
        return False
    return True


def _needs_exact(data: bytes) -> bool:
    """Tell whether the bytes may hold a number that orjson would round or respell.

    Bytes are searched for as a whole, never one by one: a regular expression took a third of a batch's time. What
    only looks like such a number inside a text makes the slower parser run: no harm done.
    """
    # The comma stands for the start: a number may be all there is.
    shapes = b",%b" % data.translate(_SHAPES, _WHITE_SPACE)
    if _WIDE in shapes or (_MINUS_ZERO in data and _holds_minus_zero(data)):
        return True
    place = shapes.find(_FRACTION_OR_EXPONENT)
    for _ in range(_LOOK_ALIKES):
        if place < 0:
            return False
        # More digits than that before the place would have been found as wide ones already.
        before = shapes[max(0, place - _LONGEST_BEFORE) : place + 1].rstrip(b"0").removesuffix(b"-")
        # Other hits are digits and letters inside texts: ids, times.
        if before.endswith(_BEFORE_VALUE):
            return True
        place = shapes.find(_FRACTION_OR_EXPONENT, place + 2)
    return True


def _holds_minus_zero(data: bytes) -> bool:
    """Tell whether a value may begin with -0; every fourth id of the usual form holds these characters too."""
    squeezed = data.translate(None, _WHITE_SPACE)
    return squeezed.startswith(_MINUS_ZERO) or any(value in squeezed for value in _MINUS_ZERO_VALUES)


def is_deeper(data: bytes, levels: int) -> bool:
    """Tell whether JSON is nested deeper than `levels`."""
    return data.count(b"[") + data.count(b"{") > levels and _textual_depth(data) > levels


_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def _textual_depth(data: bytes) -> int:
    """Count the deepest open bracket outside of texts, without recursion."""
    depth = deepest = 0
    for match in _STRING_OR_BRACKET.finditer(data):
        token = match.group()
        if token in (b"[", b"{"):
            depth += 1
            deepest = max(deepest, depth)
        elif token in (b"]", b"}"):
            depth -= 1
    return deepest


def _default(value: object) -> orjson.Fragment:
    if isinstance(value, Literal):
        return orjson.Fragment(value.text)
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value))
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def dumps(value: object) -> bytes:
    """Write compact UTF-8 JSON, numbers as they came. Accepts `Raw` for parts that stay bytes."""
    return _dump(value, 0)


def kept(data: bytes) -> bytes:
    """Return written JSON for keeping: what `dumps` gives holds its whole buffer, at least 4 KiB."""
    return b"%b" % data


def canonical(value: object) -> bytes:
    """Write compact UTF-8 JSON with sorted keys: equal content gives equal bytes."""
    return _dump(value, orjson.OPT_SORT_KEYS)


def _dump(value: object, option: int) -> bytes:
    try:
        return orjson.dumps(value, default=_default, option=option)
    except TypeError:
        return orjson.dumps(_without_wide_integers(value), default=_default, option=option)


def _without_wide_integers(value: object) -> object:
    """Replace integers beyond 64 bits, which orjson refuses, by decimals of the same text."""
    match value:
        case dict():
            return {key: _without_wide_integers(part) for key, part in value.items()}
        case list() | tuple():
            return [_without_wide_integers(part) for part in value]
        case int() if not isinstance(value, bool) and not -(2**63) <= value < 2**64:
            return Decimal(value)
        case _:
            return value
