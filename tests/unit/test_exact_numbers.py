"""Numbers come out as they went in, and what needs no exact parsing is not parsed twice."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.exact_json import _needs_exact, dumps, loads

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
    ]
)
white_space = st.sampled_from([b"", b" ", b"\n\t"])


def _list(parts: list[bytes], space: bytes) -> bytes:
    return b"[" + space + (space + b"," + space).join(parts) + space + b"]"


def _object(parts: list[bytes], space: bytes) -> bytes:
    members = (b'"k%d"%b:%b%b' % (number, space, space, part) for number, part in enumerate(parts))
    return b"{" + space + (space + b"," + space).join(members) + space + b"}"


documents = st.recursive(
    literals | st.sampled_from([b'"x"', b"null", b'"a, 1.5"']),
    lambda parts: (
        st.builds(_list, st.lists(parts, max_size=4), white_space)
        | st.builds(_object, st.lists(parts, max_size=4), white_space)
    ),
    max_leaves=8,
)


def _without_space(document: bytes) -> bytes:
    return document.replace(b'"a, 1.5"', b'"TEXT"').translate(None, b" \n\t").replace(b'"TEXT"', b'"a, 1.5"')


@given(documents, white_space)
def test_every_number_is_written_as_it_was_read(document: bytes, space: bytes) -> None:
    assert dumps(loads(space + document + space)) == _without_space(document)


@pytest.mark.parametrize(
    "document",
    [
        b'{"id":"550e8400-e29b-41d4-a716-446655440000","n":12}',
        b'{"time":"2026-11-30T12:00:00.123456Z","n":[1,2]}',
        b'{"id":"run-0-1","n":-5}',
        b'{"text":"1.5"}',
    ],
)
def test_ids_and_times_do_not_slow_an_event_down(document: bytes) -> None:
    assert not _needs_exact(document)


def test_an_exact_number_alone_is_found() -> None:
    assert loads(b" 1.50 ") == Decimal("1.50")
    assert dumps(loads(b"-0")) == b"-0"
