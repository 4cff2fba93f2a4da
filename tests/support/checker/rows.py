"""What is stored of one item: the row, and the history of its versions."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from schemas.exact_json import JsonValue, canonical, loads
from tests.support.checker.commands import Answered
from tests.support.checker.linearizability import NOTHING, Kind, Operation
from tests.support.checker.verdict import Verdict
from tests.support.history import History, ItemRow, VersionRow
from workers.logic.memory.conversations import RECORD_TYPE


class Made(NamedTuple):
    """A version: who made it, and when it ends (seconds)."""

    by: Answered
    expires: float = inf


class Stored(NamedTuple):
    """An item's row, if there is one, and what of its history nobody erased."""

    row: ItemRow | None
    versions: Sequence[VersionRow]


def stored_rows(history: History) -> dict[str, Stored]:
    """Return what is stored, by address."""
    versions: defaultdict[str, list[VersionRow]] = defaultdict(list)
    for version in history.versions:
        versions[version.address].append(version)
    return {row.address: Stored(row, versions[row.address]) for row in history.items}


def is_conversation(address: str) -> bool:
    """Tell whether an address is that of a conversation, or of all of a workflow's."""
    return address.split("/")[3] == RECORD_TYPE


class Known(NamedTuple):
    """What the outcomes say of an item, until `end` (seconds): its versions, their values, how often it was removed."""

    address: str
    made: Mapping[int, Made]
    #: Values as canonical JSON, as far as they are known.
    values: Mapping[int, bytes]
    removed: int
    end: float
    #: What of a stored value is such a value.
    part: Callable[[JsonValue], JsonValue] = lambda value: value

    def differs(self, version: int, stored: bytes | None) -> bool:
        """Tell whether a stored value is another one than the version's."""
        if stored is None or version not in self.values:
            return False
        return canonical(self.part(loads(stored))) != self.values[version]


def check_stored(known: Known, stored: Stored, verdict: Verdict) -> Operation | None:
    """Check row and history; return the row as a read after everything else, where it shows what that read saw."""
    row = stored.row
    newest = max(known.made, default=0)
    if row is None or row.version != newest:
        if newest or row is not None:
            shown = "nothing" if row is None else f"version {row.version}"
            verdict.add("item_wrong", known.address, f"{shown} is stored, version {newest} was made last")
        return None
    changes = newest + known.removed
    may_expire = any(made.expires <= known.end for made in known.made.values())
    if row.sequence < changes or (row.sequence > changes and not may_expire):
        verdict.add("item_wrong", known.address, f"the sequence is {row.sequence}, there were {changes} changes")
    if known.differs(newest, row.value):
        verdict.add(
            "item_wrong", known.address, f"{shown_value(row.value)} is stored, not the value of version {newest}"
        )
    _check_versions(known, row, stored.versions, verdict)
    if may_expire:
        return None
    seen = newest if row.value is not None else NOTHING
    return Operation("the stored row", Kind.OBSERVE, known.end + 1, known.end + 2, seen)


def _check_versions(known: Known, row: ItemRow, versions: Iterable[VersionRow], verdict: Verdict) -> None:
    stored = {version.version: version for version in versions if version.version > row.erased_version}
    for number, made in known.made.items():
        version = stored.pop(number, None)
        if number <= row.erased_version or (version is None and made.expires <= known.end):
            continue
        if version is None:
            verdict.add("history_wrong", known.address, f"version {number} is not in the history")
        elif version.command_key != made.by.command.key:
            verdict.add("history_wrong", known.address, f"version {number} is not {made.by.name}'s")
        elif known.differs(number, version.value):
            verdict.add("history_wrong", known.address, f"version {number} has another value")
    for number in stored:
        verdict.add("history_wrong", known.address, f"the history has version {number}, which nobody made")


def shown_value(value: bytes | None) -> str:
    """Return the beginning of a value."""
    return "unknown" if value is None else value.decode()[:80]
