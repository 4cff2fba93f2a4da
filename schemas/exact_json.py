"""JSON in which every number comes out as it went in.

A float cannot hold `100.00`, `23843037174560269` in every reader, or `0.1234567890123456789`
(camunda#12473, digdag#916). So numbers are `int` or `Decimal`, never `float`, and a literal that
`Decimal` would print differently (`1e5`, `-0`) keeps its own text.
"""

import json
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn, Self, TypeAlias, TypeVar, cast

import msgspec
import orjson

JsonValue: TypeAlias = bool | int | Decimal | str | list["JsonValue"] | dict[str, "JsonValue"] | None
JsonObject: TypeAlias = dict[str, JsonValue]
T = TypeVar("T")

#: Longer integers are decimals: what counts on 64 bits never meets one that is wider.
_INTEGER_DIGITS = 18
#: What JSON looks like when every digit is a 0 and every bracket that opens is a [.
_SHAPE = bytes.maketrans(b"123456789{", b"000000000[")
_WIDE = b"0" * (_INTEGER_DIGITS + 1)
#: What ids and times hold, -0a1b and -05T, goes on.
_NEGATIVE_ZERO = re.compile(rb"-0(?![\w.])")
_ALL_BUT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
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
    if len(text.lstrip("-")) > _INTEGER_DIGITS or text == "-0":
        return _number(text)
    return int(text)


def _constant(text: str) -> NoReturn:
    raise InvalidJson("malformed", f"not valid JSON: {text} is no number")


def decoder_of(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Return a decoder of `kind` that reads every float from its text; its integers are only right where `is_plain`."""
    return msgspec.json.Decoder(kind, float_hook=_number)


_fast = decoder_of(object)
#: Reads integers from their texts too.
_exact = json.JSONDecoder(
    parse_float=cast("Callable[[str], Any]", _number),
    parse_int=cast("Callable[[str], Any]", _integer),
    parse_constant=_constant,
)


def loads(data: bytes, max_nesting: int = MAX_NESTING) -> JsonValue:
    """Parse UTF-8 JSON exactly.

    Raises `InvalidJson`: `malformed` (syntax, not UTF-8, an unpaired surrogate: kestra#14806),
    `too_deep` (nesting beyond `max_nesting`, 64 levels for what others write).
    """
    if not is_plain(data, max_nesting):
        if is_deeper(data, max_nesting):
            raise InvalidJson("too_deep", f"the JSON is nested deeper than {max_nesting} levels; flatten it")
        outside = _outside_of_texts(data)
        if _may_hold_odd_integer(outside, outside.translate(_SHAPE)):
            return _exactly(data)
    try:
        return cast("JsonValue", _fast.decode(data))
    except msgspec.DecodeError as error:
        raise InvalidJson("malformed", f"not valid JSON: {error}") from error


def is_plain(data: bytes, max_nesting: int = MAX_NESTING) -> bool:
    """Tell, by a glance, whether JSON is neither too deep nor holds an integer that is no `int` here.

    Nearly all is: what is not is looked at again.
    """
    shape = data.translate(_SHAPE)
    return shape.count(b"[") <= max_nesting and not _may_hold_odd_integer(data, shape)


def _may_hold_odd_integer(data: bytes, shape: bytes) -> bool:
    """Tell whether there may be an integer that is no `int` here: `-0`, or a long one."""
    return _WIDE in shape or _NEGATIVE_ZERO.search(data) is not None


def _exactly(data: bytes) -> JsonValue:
    try:
        value = cast("JsonValue", _exact.decode(data.decode()))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidJson("malformed", f"not valid JSON: {error}") from error
    try:
        dumps(value)
    except TypeError as error:
        # Python's reader accepts an unpaired surrogate, which no UTF-8 can hold.
        raise InvalidJson("malformed", f"not valid JSON: {error}") from error
    return value


def _outside_of_texts(data: bytes) -> bytes:
    """Return what stands between the texts of JSON: bytes cut as a whole, where a pattern would go one by one."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(data.split(b'"')[::2])


def is_deeper(data: bytes, levels: int) -> bool:
    """Tell whether JSON is nested deeper than `levels`."""
    return data.count(b"[") + data.count(b"{") > levels and _textual_depth(data) > levels


def _textual_depth(data: bytes) -> int:
    """Count the deepest open bracket outside of texts, without recursion."""
    depth = deepest = 0
    for bracket in _outside_of_texts(data).translate(None, _ALL_BUT_BRACKETS):
        if bracket in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        else:
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
    try:
        # A copy: what orjson returns holds its whole buffer, at least 4 KiB. Kept, that is ten times the memory; and
        # a batch's worth of buffers does not fit into the processor's cache, which took a seventh of its time.
        return b"%b" % orjson.dumps(value, default=_default)
    except TypeError:
        return b"%b" % orjson.dumps(_without_wide_integers(value), default=_default)


def canonical(value: object) -> bytes:
    """Write compact UTF-8 JSON with sorted keys: equal content gives equal bytes."""
    try:
        return orjson.dumps(value, default=_default, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return orjson.dumps(_without_wide_integers(value), default=_default, option=orjson.OPT_SORT_KEYS)


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
