"""Hypothesis strategies for JSON as `schemas.exact_json` gives it, and a store to look things up in."""

from collections.abc import Callable
from decimal import Decimal
from typing import ParamSpec

from hypothesis import strategies as st

from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue
from workers.logic.variables.references import Lookup, Missing, Path, descend

P = ParamSpec("P")

#: Encodable texts: an unpaired surrogate is refused where JSON comes in.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
numbers = st.integers(-(10**18) + 1, 10**18 - 1) | st.decimals(
    allow_nan=False, allow_infinity=False, min_value=Decimal(-(10**12)), max_value=Decimal(10**12)
)
scalars = st.none() | st.booleans() | numbers | texts
#: What a name of a node or variable may be.
names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=".{}|" + "".join(map(chr, range(32)))),
    min_size=1,
    max_size=8,
).filter(lambda name: name == name.strip())
json_values = st.recursive(
    scalars, lambda parts: st.lists(parts, max_size=4) | st.dictionaries(texts, parts, max_size=4), max_leaves=12
)
json_objects = st.dictionaries(texts, json_values, max_size=5)


def lookup_in(store: JsonObject) -> Lookup:
    def lookup(path: Path) -> JsonValue | Missing:
        return descend(store, path.segments)

    return lookup


def reason_of(function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> str | None:
    """Call and give the reason of the rejection, or None where there is none."""
    try:
        function(*args, **kwargs)
    except Rejection as rejection:
        return rejection.reason
    return None
