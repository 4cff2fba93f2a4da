"""Every number comes out as it went in, and what cannot be kept exactly is refused."""

import tracemalloc
from decimal import Decimal
from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.exact_json import InvalidJson, JsonValue, Raw, canonical, dumps, loads
from tests.support.json_values import json_values

#: Literals that other parsers round, shorten or refuse.
LITERALS = [
    "0",
    "-0",
    "100.00",
    "0.1234567890123456789",
    "23843037174560269",
    "12345678901234567890",
    "-12345678901234567890123",
    "9223372036854775808",
    "18446744073709551616",
    "1e5",
    "1E5",
    "1E+5",
    "-1.50e-7",
    "0.0",
    "-0.0",
    "1e400",
    "123456789012345678",
    "1234567890123456789",
]


def refusal(data: bytes) -> str:
    with pytest.raises(InvalidJson) as refused:
        loads(data)
    return refused.value.code


@pytest.mark.parametrize("literal", LITERALS)
@pytest.mark.parametrize("form", ["{}", "[{}]", '{{"a":{}}}', '{{"a":[true,{}]}}', '[[{{"b":{}}}]]', '["x,1.5",{}]'])
def test_a_number_keeps_its_spelling_wherever_it_stands(literal: str, form: str) -> None:
    text = form.format(literal).encode()

    assert dumps(loads(text)) == text


@pytest.mark.parametrize("space", [b" ", b"\n", b"\t", b"\r\n  "])
def test_white_space_around_a_number_changes_nothing(space: bytes) -> None:
    text = space.join([b"{", b'"a"', b":", b"100.00", b",", b'"b"', b":", b"[", b"1e5", b"]", b"}"])

    assert dumps(loads(text)) == b'{"a":100.00,"b":[1e5]}'


@given(st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", fullmatch=True))
def test_any_json_number_keeps_its_spelling(literal: str) -> None:
    text = b'{"n":%b,"in":[%b]}' % (literal.encode(), literal.encode())

    assert dumps(loads(text)) == text


@given(json_values)
def test_what_is_written_is_read_back(value: JsonValue) -> None:
    assert loads(dumps(value)) == value


@given(json_values)
def test_no_value_is_ever_a_float(value: JsonValue) -> None:
    def parts(part: JsonValue) -> list[JsonValue]:
        match part:
            case dict():
                return [inner for each in part.values() for inner in parts(each)]
            case list():
                return [inner for each in part for inner in parts(each)]
            case _:
                return [part]

    assert not any(isinstance(part, float) for part in parts(loads(dumps(value))))


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**63) - 1, 10**30])
def test_integers_beyond_64_bits_are_written(number: int) -> None:
    assert dumps({"a": [number, True, (number,)]}) == f'{{"a":[{number},true,[{number}]]}}'.encode()


def test_equal_content_has_equal_canonical_bytes() -> None:
    assert canonical({"b": 1, "a": {"d": 2, "c": 3}}) == canonical({"a": {"c": 3, "d": 2}, "b": 1})
    assert canonical(loads(b"100.0")) != canonical(loads(b"100.00"))
    assert canonical({"b": 10**30, "a": 1}) == b'{"a":1,"b":1000000000000000000000000000000}'


def test_stored_bytes_are_written_as_they_are() -> None:
    assert dumps({"value": Raw(b'{"n": 1.50}')}) == b'{"value":{"n": 1.50}}'


def test_nul_characters_are_kept() -> None:
    assert loads(dumps("a\x00b")) == "a\x00b"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "malformed"),
        (b"{", "malformed"),
        (b"nope", "malformed"),
        (b"01", "malformed"),
        (b"NaN", "malformed"),
        (b"[1,]", "malformed"),
        (b'"\xff"', "malformed"),
        (b'"\\ud835"', "malformed"),
        (b"1e9999999999999999999", "malformed"),
        (b"[1e400,01]", "malformed"),
        (b"[1e400,1.]", "malformed"),
        (b'[1e400,"\\ud835"]', "malformed"),
        (b"[1e400,NaN]", "malformed"),
        (b"--0", "malformed"),
        (b"[-0,01]", "malformed"),
        (b'[-0,"\\ud835"]', "malformed"),
        (b"[-0,NaN]", "malformed"),
        (b'[-0,"\xff"]', "malformed"),
        (b"[-0,1e9999999999999999999]", "malformed"),
        (b"[" * 65 + b"]" * 65, "too_deep"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "too_deep"),
        (b"[" * 100_000, "too_deep"),
    ],
)
def test_what_cannot_be_kept_is_refused(data: bytes, code: str) -> None:
    assert refusal(data) == code


def test_depth_is_counted_outside_of_texts() -> None:
    many = b"[" + b",".join([b'"[{\\"["'] * 50) + b"]"

    assert isinstance(loads(many), list)
    assert loads(b"[" * 64 + b"]" * 64) is not None


def test_many_shallow_brackets_are_not_deep() -> None:
    assert loads(b"[" + b",".join([b"[]"] * 100) + b"]") == [[]] * 100


def test_what_is_no_json_value_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="object"):
        dumps({"a": object()})


def test_a_decimal_is_written_as_it_prints() -> None:
    assert dumps([Decimal("1.10"), Decimal("1E+2")]) == b"[1.10,1E+2]"


def test_a_text_of_megabytes_that_looks_like_numbers_is_read_at_once() -> None:
    """Looking back from each look-alike over all that came before took eleven seconds: longer than a session."""
    text = b'{"blob":"%b"}' % (b"7e1." * 750_000)

    begun = monotonic()
    assert loads(text) == {"blob": "7e1." * 750_000}

    assert monotonic() - begun < 2


def test_what_is_kept_takes_no_more_memory_than_it_needs() -> None:
    """What orjson returns holds its whole buffer: 100,000 stores of 20 small values would take 8 GiB."""
    tracemalloc.start()
    try:
        values = [dumps({"n": number}) for number in range(500)]
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert values[7] == b'{"n":7}'
    assert held < 500 * 200


def test_malformed_json_is_refused_in_the_time_of_its_length() -> None:
    # From each quote of a text that nothing closes, a search would go to the end: days for a full record.
    with pytest.raises(InvalidJson) as refused:
        loads(b'{"a":"' + b'\\"' * 500_000)

    assert refused.value.code == "malformed"
