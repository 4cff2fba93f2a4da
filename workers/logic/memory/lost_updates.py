"""Lost updates: what was replaced that its writer had not seen.

A write brings a value, a merge patch brings members: what they were made from may have changed since. All other updates
are made of what is stored now, so they lose nothing.
"""

from schemas.exact_json import JsonValue, loads
from workers.logic.memory.commands import Command, Update, Write
from workers.logic.memory.conflicts import Race
from workers.logic.memory.diff import NOTHING, MaybeValue, Nothing, Path, same
from workers.logic.memory.items import Item
from workers.logic.memory.merge import Merge


def seen_before_a_loss(command: Command, request: Write | Update, current: int, item: Item) -> int | None:
    """Return the version that the writer had seen, if the live version `current` is a later one that it had not.

    What the same execution wrote itself, it has seen. Expiry is no race: then nothing is replaced.
    """
    seen = request.read_version
    if request.expected is not None or seen is None or not seen < current:
        return None
    execution = _execution_of(command.writer)
    return None if execution is not None and execution == _execution_of(item.writer) else seen


def _execution_of(writer: bytes | None) -> JsonValue:
    named = None if writer is None else loads(writer)
    return named.get("execution_id") if isinstance(named, dict) else None


def overlap_of(patch: JsonValue, race: Race) -> Merge | None:
    """Return what a merge patch replaced of what others had made meanwhile, as a merge that is not possible.

    None where it lies beside their changes, and nothing is lost.
    """
    assert race.base is not None, "without a base nobody knows what was made meanwhile"
    found: list[Path] = []
    _compare(patch, race.base.value, race.current.value, (), found)
    return Merge(tuple(found), race.current.value) if found else None


def _compare(patch: JsonValue, base: MaybeValue, current: MaybeValue, path: Path, found: list[Path]) -> None:
    known: MaybeValue = {} if isinstance(base, Nothing) else base
    if isinstance(patch, dict) and isinstance(known, dict) and isinstance(current, dict):
        for name, part in patch.items():
            _compare(part, known.get(name, NOTHING), current.get(name, NOTHING), (*path, name), found)
    elif not same(base, current):
        found.append(path)
