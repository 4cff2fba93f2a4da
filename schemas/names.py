"""Which names a node or variable may have."""

import re
from functools import lru_cache

from schemas.errors import Rejection
from schemas.limits import Limits

#: Scopes of the store itself, and the aliases of the scratchpad.
RESERVED_NAMES = frozenset(
    {
        "input",
        "system",
        "_prev",
        "last_output",
        "last_output_parsed",
        "memory",
        "memory_manager",
        "state",
        "event",
        "outputs",
    }
)
#: Characters that the reference grammar gives a meaning to, and control characters.
_FORBIDDEN = re.compile(r"[.{}|\x00-\x1f]")


def check_name(name: str, what: str, limits: Limits) -> None:
    """Raise `Rejection` (`name_invalid`, `reserved_name`) unless a node or variable may be called so."""
    check_spelling(name, what, limits)
    if name in RESERVED_NAMES:
        raise Rejection("reserved_name", f"{what} {name!r} is reserved; choose another name")


def check_spelling(name: str, what: str, limits: Limits) -> None:
    """Raise `Rejection` (`name_invalid`) unless a reference can hold the name; inside of objects all names are free."""
    if not name or len(name) > limits.name_characters:
        raise Rejection(
            "name_invalid",
            f"{what} {name[:40]!r} has {len(name)} characters; 1 to {limits.name_characters} are allowed",
        )
    if not _is_spelled_well(name):
        raise Rejection(
            "name_invalid",
            f"{what} {name!r} holds white space at an end, a control character or one of . {{ }} |; "
            "it could not be referenced",
        )


@lru_cache(maxsize=65536)
def _is_spelled_well(name: str) -> bool:
    return name == name.strip() and _FORBIDDEN.search(name) is None
