"""Two JSON values -> what changed: RFC 6902 patches, and changed paths for merging. Numbers compare as written.

(`jsonpatch` compares through `json.dumps`, which knows no Decimal, and takes `true` for `1`.)
"""

from collections.abc import Sequence
from decimal import Decimal
from enum import Enum
from typing import Final

from schemas.exact_json import JsonObject, JsonValue
from workers.logic.memory.types import number_text

Path = tuple[str, ...]


class Nothing(Enum):
    """Stands for a value that is not there: null is a value."""

    NOTHING = "nothing"


NOTHING: Final = Nothing.NOTHING
MaybeValue = JsonValue | Nothing


def same(left: MaybeValue, right: MaybeValue) -> bool:
    """Tell whether two values are the same JSON, down to how numbers are written: 100 is not 100.00."""
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(same(part, right[name]) for name, part in left.items())
        )
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, (int, Decimal)):
        return isinstance(right, (int, Decimal)) and number_text(left) == number_text(right)
    return type(left) is type(right) and left == right


def pointer(path: Sequence[str]) -> str:
    """Write a path as a JSON pointer (RFC 6901)."""
    return "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in path)


def make_patch(base: MaybeValue, target: MaybeValue) -> list[JsonObject]:
    """Return the RFC 6902 patch that makes `target` of `base`. Objects are compared by name, lists by place."""
    operations: list[JsonObject] = []
    _compare(base, target, (), operations)
    return operations


def _compare(base: MaybeValue, target: MaybeValue, path: Path, operations: list[JsonObject]) -> None:
    if isinstance(target, Nothing):
        if not isinstance(base, Nothing):
            operations.append({"op": "remove", "path": pointer(path)})
    elif isinstance(base, Nothing):
        operations.append({"op": "add", "path": pointer(path), "value": target})
    elif isinstance(base, dict) and isinstance(target, dict):
        operations.extend({"op": "remove", "path": pointer((*path, name))} for name in base if name not in target)
        for name, part in target.items():
            _compare(base.get(name, NOTHING), part, (*path, name), operations)
    elif isinstance(base, list) and isinstance(target, list):
        _compare_lists(base, target, path, operations)
    elif not same(base, target):
        operations.append({"op": "replace", "path": pointer(path), "value": target})


def _compare_lists(base: list[JsonValue], target: list[JsonValue], path: Path, operations: list[JsonObject]) -> None:
    """Leave the common start and end alone; in between, compare place by place."""
    shorter = min(len(base), len(target))
    start = 0
    while start < shorter and same(base[start], target[start]):
        start += 1
    end = 0
    while end < shorter - start and same(base[-1 - end], target[-1 - end]):
        end += 1
    base_end, target_end = len(base) - end, len(target) - end
    paired = min(base_end, target_end)
    for index in range(start, paired):
        _compare(base[index], target[index], (*path, str(index)), operations)
    # From the end, so that the places before stay what they are.
    surplus = range(base_end - 1, paired - 1, -1)
    operations.extend({"op": "remove", "path": pointer((*path, str(index)))} for index in surplus)
    operations.extend(
        {"op": "add", "path": pointer((*path, str(index))), "value": target[index]}
        for index in range(paired, target_end)
    )


def changes(base: MaybeValue, target: MaybeValue) -> dict[Path, MaybeValue]:
    """Return changed path -> its new value. A list is one value: places in it move, so they cannot be told apart."""
    found: dict[Path, MaybeValue] = {}
    _collect(base, target, (), found)
    return found


def _collect(base: MaybeValue, target: MaybeValue, path: Path, found: dict[Path, MaybeValue]) -> None:
    if isinstance(base, dict) and isinstance(target, dict):
        for name in [name for name in base if name not in target]:
            found[(*path, name)] = NOTHING
        for name, part in target.items():
            _collect(base.get(name, NOTHING), part, (*path, name), found)
    elif not same(base, target):
        found[path] = target
