"""Addresses are canonical: each item has one, each one names one item."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.address import Address, format_address, parse_address
from schemas.errors import Rejection

segments = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
absent_or = st.none() | segments
addresses = st.builds(
    Address, segments, st.sampled_from(["workflow", "shared"]), absent_or, absent_or, absent_or, segments
)


def refusal(address: Address) -> str:
    with pytest.raises(Rejection) as refused:
        format_address(address)
    return refused.value.reason


@given(addresses)
def test_an_address_is_read_back_from_its_text(address: Address) -> None:
    assert parse_address(format_address(address)) == address


@given(addresses, addresses)
def test_two_items_never_share_a_text(one: Address, other: Address) -> None:
    assert (str(one) == str(other)) == (one == other)


@given(addresses)
def test_a_text_is_safe_as_a_key_and_as_a_path(address: Address) -> None:
    text = str(address)

    assert text.isascii()
    assert text.count("/") == 5
    assert text.isprintable()


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (Address("default", "workflow", "w", "patient", "P-4711", "k"), "default/workflow/w/patient/P-4711/k"),
        (Address("default", "shared", None, None, None, "last-batch"), "default/shared/-/-/-/last-batch"),
        (Address("t", "shared", None, "-", "a/b", "100 %"), "t/shared/-/%2D/a%2Fb/100%20%25"),
        (Address("t", "shared", None, "k", "--", "é~._-"), "t/shared/-/k/--/%C3%A9~._-"),
    ],
)
def test_the_spelling_is_fixed(address: Address, text: str) -> None:
    assert format_address(address) == text


@pytest.mark.parametrize("text", ["", "a\x00", "a\n", "\x7f"])
def test_an_empty_or_unprintable_segment_is_refused(text: str) -> None:
    assert refusal(Address("t", "shared", None, "k", text, "key")) == "address_invalid"


def test_a_long_address_is_refused() -> None:
    assert refusal(Address("t", "shared", None, "k", "i", "x" * 1024)) == "address_too_long"


@pytest.mark.parametrize(
    "text", ["", "a/b", "t/private/w/k/i/key", "-/shared/-/k/i/key", "t/shared/-/k/i/-", "a/shared/b/c/d/e/f"]
)
def test_a_text_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(Rejection) as refused:
        parse_address(text)

    assert refused.value.reason == "address_invalid"
