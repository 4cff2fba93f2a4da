"""An output mapping (target -> template) -> the writes it makes and the reads it did.

All references read the same state, so the order of targets never matters.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise

from schemas.errors import Rejection
from schemas.exact_json import JsonValue
from schemas.limits import DEFAULT_LIMITS, Limits
from schemas.names import check_name, check_spelling
from workers.logic.variables.bodies import template_of
from workers.logic.variables.references import MISSING, Lookup, Path, Read


@dataclass(frozen=True, slots=True)
class Write:
    """Set the value at this place; objects on the way are kept, or made where nothing (or null) is."""

    segments: tuple[str, ...]
    value: JsonValue


def plan_mapping(
    mapping: Mapping[str, JsonValue], lookup: Lookup, current: Lookup, limits: Limits = DEFAULT_LIMITS
) -> tuple[tuple[Write, ...], tuple[Read, ...]]:
    """Plan all writes of a mapping, in its order, or raise: nothing is ever half-written.

    `lookup` answers the references (the store as it was, with the activity's own output under its id);
    `current` is the store that is written to: a dotted target must find objects, null or nothing on its way.

    Raises `Rejection`: `name_invalid`, `reserved_name` (a target), `targets_overlap` (one target
    holds another), `target_not_an_object`, `template_invalid`, `result_too_large`.
    """
    template = template_of(dict(mapping))
    targets = _planned_targets(mapping, current, limits)
    rendered, reads = template.render(lookup, limits.result_bytes)
    assert isinstance(rendered, dict)
    return tuple(Write(segments, rendered[target]) for target, segments in targets), reads


def plan_values(values: Mapping[str, JsonValue], current: Lookup, limits: Limits = DEFAULT_LIMITS) -> tuple[Write, ...]:
    """Plan the writes of variables whose values are data, such as an agent's own: no text in them is a template.

    Targets are as in a mapping. Raises `Rejection` as `plan_mapping` does for targets.
    """
    return tuple(Write(segments, values[target]) for target, segments in _planned_targets(values, current, limits))


def _planned_targets(names: Collection[str], current: Lookup, limits: Limits) -> list[tuple[str, tuple[str, ...]]]:
    targets = [(target, parse_target(target, limits)) for target in names]
    _check_overlap([segments for _, segments in targets])
    for target, segments in targets:
        _check_way(target, segments, current)
    return targets


def parse_target(target: str, limits: Limits = DEFAULT_LIMITS) -> tuple[str, ...]:
    """Split a target at its dots; its first name must be free for variables, the others are object keys."""
    top, *keys = target.split(".")
    check_name(top, "the mapping target", limits)
    for key in keys:
        check_spelling(key, f"in the mapping target {target[:80]!r}, the key", limits)
    return (top, *keys)


def _check_overlap(targets: Collection[tuple[str, ...]]) -> None:
    # Sorted, a target that holds another one stands directly before the first that it holds.
    for outer, inner in pairwise(sorted(targets)):
        if inner[: len(outer)] == outer:
            raise Rejection(
                "targets_overlap",
                f"the mapping targets {'.'.join(outer)!r} and {'.'.join(inner)!r} overlap; "
                "which of them would win is undefined, so keep one",
            )


def _check_way(target: str, segments: tuple[str, ...], current: Lookup) -> None:
    for depth in range(1, len(segments)):
        value = current(Path(segments[:depth]))
        if value is MISSING or value is None:
            return
        if not isinstance(value, dict):
            kind = "a list" if isinstance(value, list) else "a scalar"
            raise Rejection(
                "target_not_an_object",
                f"the mapping target {target!r} needs an object at {'.'.join(segments[:depth])!r}, "
                f"where {kind} is stored; map to another name, or map the whole value",
            )
