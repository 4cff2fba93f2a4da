"""Three-way merge: both sides' changes are kept when their paths are disjoint.

The same path changed on both sides is an overlap even where both wrote the same value: two runs that
counted 5 up to 6 have counted twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from schemas.exact_json import JsonObject, JsonValue
from workers.logic.memory.diff import MaybeValue, Nothing, Path, changes


@dataclass(frozen=True, slots=True)
class Merge:
    """`overlapping` are the attempted paths that the other side changed too."""

    overlapping: tuple[Path, ...]
    #: The merged value; meaningless while paths overlap.
    value: MaybeValue

    @property
    def possible(self) -> bool:
        """Whether nothing overlaps and there is a value to write."""
        return not self.overlapping and not isinstance(self.value, Nothing)


def merge(base: MaybeValue, current: MaybeValue, attempted: MaybeValue) -> Merge:
    """Merge what was attempted from `base` into what became of it meanwhile."""
    theirs = changes(base, current)
    ours = changes(base, attempted)
    overlapping = tuple(_overlapping(theirs, ours))
    if overlapping:
        return Merge(overlapping, current)
    merged = current
    for path, value in ours.items():
        merged = _with(merged, path, value)
    return Merge((), merged)


def _overlapping(theirs: Mapping[Path, MaybeValue], ours: Mapping[Path, MaybeValue]) -> list[Path]:
    """Return our paths that lie at, above or below one of theirs."""
    above_theirs = {path[:length] for path in theirs for length in range(len(path))}
    return [
        path for path in ours if path in above_theirs or any(path[:length] in theirs for length in range(len(path) + 1))
    ]


def _with(target: MaybeValue, path: Path, value: MaybeValue) -> MaybeValue:
    """Return `target` with `value` at `path`; only the objects along the path are copied."""
    if not path:
        return value
    assert isinstance(target, dict), "a disjoint change leaves the objects above it in place"
    copy: JsonObject = dict(target)
    name, rest = path[0], path[1:]
    if rest:
        copy[name] = cast("JsonValue", _with(copy[name], rest, value))
    elif isinstance(value, Nothing):
        copy.pop(name, None)
    else:
        copy[name] = value
    return copy
