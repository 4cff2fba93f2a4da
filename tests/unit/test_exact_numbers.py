"""Numbers come out as they went in, whichever of the two readers they need."""

import json
import sys
from decimal import Decimal, InvalidOperation

from hypothesis import given
from hypothesis import strategies as st

from schemas.exact_json import InvalidJson, dumps, loads

literals = st.sampled_from(
    [
        b"1.50",
        b"100.00",
        b"-0",
        b"0",
        b"7",
        b"-12",
        b"1e5",
        b"1E+2",
        b"-0.5",
        b"12345678901234567890",
        b"-1234567890123456789",
        b"123456789012345678",
        b"-123456789012345678",
        b"1e400",
    ]
)
white_space = st.sampled_from([b"", b" ", b"\n\t"])


def _list(parts: list[bytes], space: bytes) -> bytes:
    return b"[" + space + (space + b"," + space).join(parts) + space + b"]"


def _object(parts: list[bytes], space: bytes) -> bytes:
    members = (b'"k%d"%b:%b%b' % (number, space, space, part) for number, part in enumerate(parts))
    return b"{" + space + (space + b"," + space).join(members) + space + b"}"


documents = st.recursive(
    literals | st.sampled_from([b'"x"', b"null", b'"a, 1.5"', b'"run-0"', b'"\\"-0"']),
    lambda parts: (
        st.builds(_list, st.lists(parts, max_size=4), white_space)
        | st.builds(_object, st.lists(parts, max_size=4), white_space)
    ),
    max_leaves=8,
)


def _without_space(document: bytes) -> bytes:
    return document.replace(b'"a, 1.5"', b'"TEXT"').translate(None, b" \n\t").replace(b'"TEXT"', b'"a, 1.5"')


class Spelled(str):
    """A number's text."""

    __slots__ = ()


def _number(text: str) -> Spelled:
    Decimal(text)  # raises where no decimal is that large
    return Spelled(text)


def _constant(text: str) -> None:
    raise ValueError(f"{text} is no number")


_plain = json.JSONDecoder(parse_float=_number, parse_int=_number, parse_constant=_constant)


def read_plainly(data: bytes) -> object:
    """Read by nothing but Python's own reader. Raises `ValueError` or `InvalidOperation`."""
    value = _plain.decode(data.decode())
    json.dumps(value, ensure_ascii=False).encode()  # an unpaired surrogate raises
    return value


def spelled(value: object) -> object:
    """Return what was read with its numbers as texts, after a look at their types."""
    match value:
        case dict():
            return {name: spelled(part) for name, part in value.items()}
        case list():
            return [spelled(part) for part in value]
        case bool():
            return value
        case int() | Decimal():
            text = dumps(value).decode()
            is_short = text.lstrip("-").isdecimal() and len(text.lstrip("-")) <= 18 and text != "-0"
            assert type(value) is int if is_short else isinstance(value, Decimal)
            return Spelled(text)
        case _:
            return value


#: What does not belong where it comes to stand, or does.
slips = st.sampled_from(
    b""", : " \\ [ } - -0 0 . e E5 NaN -Infinity true "k": "k0":1, 1111111111111111111""".split()
    + rb'''\n \u00e9 \ud835 \udd04 "\udd04" "\ud835\udd04"'''.split()
    + [b"", b" ", b"\x00", b"\x1f", b"\x7f", b"\xff", b"\xc3\xa9", b"\xed\xa0\x80", b"\xef\xbb\xbf"]
)


@st.composite
def slipped(draw: st.DrawFn) -> bytes:
    """Return a document with something put in or taken away."""
    document = draw(documents)
    place = draw(st.integers(0, len(document)))
    return document[:place] + draw(slips) + document[place + draw(st.integers(0, 2)) :]


@given(documents, white_space)
def test_every_number_is_written_as_it_was_read(document: bytes, space: bytes) -> None:
    assert dumps(loads(space + document + space)) == _without_space(document)


@given(documents | slipped())
def test_the_same_is_read_and_refused_as_by_the_plain_reader(data: bytes) -> None:
    try:
        expected = read_plainly(data)
    except (ValueError, InvalidOperation):
        expected = InvalidJson
    try:
        found = spelled(loads(data))
    except InvalidJson:
        found = InvalidJson

    assert found == expected


def test_an_exact_number_alone_is_found() -> None:
    assert loads(b" 1.50 ") == Decimal("1.50")
    assert dumps(loads(b"-0")) == b"-0"


def test_an_integer_longer_than_python_reads_is_kept() -> None:
    text = b"9" * (sys.int_info.default_max_str_digits + 1)

    assert dumps(loads(b"[%b,-%b,1]" % (text, text))) == b"[%b,-%b,1]" % (text, text)
