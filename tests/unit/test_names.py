"""Which names a node or variable may have."""

import pytest

from schemas.errors import Rejection
from schemas.limits import DEFAULT_LIMITS
from schemas.names import RESERVED_NAMES, check_name


def refusal(name: str) -> str:
    with pytest.raises(Rejection) as refused:
        check_name(name, "the node id", DEFAULT_LIMITS)
    return refused.value.reason


@pytest.mark.parametrize("name", ["a", "check-fee", "Überprüfung 2", "x" * 256, "t02_check", "_x"])
def test_names_with_dashes_spaces_inside_and_any_letters_are_fine(name: str) -> None:
    check_name(name, "the node id", DEFAULT_LIMITS)


@pytest.mark.parametrize("name", ["", "x" * 257, " a", "a ", "a.b", "a{", "}a", "a|b", "a\n", "a\x00b"])
def test_a_name_that_no_reference_could_name_is_refused(name: str) -> None:
    assert refusal(name) == "name_invalid"


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_the_stores_own_names_are_reserved(name: str) -> None:
    assert refusal(name) == "reserved_name"
