"""A race -> what `memory.conflict_detected` says about it."""

from datetime import datetime
from hashlib import sha256
from typing import Final, Literal, NamedTuple, cast

from schemas.exact_json import JsonObject, JsonValue, Raw, dumps, loads
from schemas.limits import Limits
from workers.logic.memory.diff import NOTHING, MaybeValue, make_patch, pointer
from workers.logic.memory.items import Item, Version, is_live
from workers.logic.memory.merge import Merge, merge
from workers.logic.memory.timestamps import timestamp

Kind = Literal["conditional_write", "lost_update"]
Resolution = Literal["rejected", "merged", "overwritten"]
#: More paths than a person reads; the patches hold them all.
_MAX_PATHS = 100


class Side(NamedTuple):
    """One value of a race; `body` is None where there is no value, and `value` `NOTHING`."""

    value: MaybeValue
    body: bytes | None
    version: int | None
    writer: bytes | None = None
    written_at: datetime | None = None

    def data(self, limits: Limits) -> JsonObject:
        """Return the side as the event shows it: a large value by its size and hash."""
        shown: dict[str, object] = {"version": self.version}
        if self.body is None:
            shown["value"] = None
        elif len(self.body) <= limits.conflict_value_bytes:
            shown["value"] = Raw(self.body)
        else:
            shown["value_bytes"] = len(self.body)
            shown["value_sha256"] = sha256(self.body).hexdigest()
        if self.writer is not None:
            shown["writer"] = Raw(self.writer)
        if self.written_at is not None:
            shown["written_at"] = timestamp(self.written_at)
        return cast("JsonObject", shown)


_NOTHING_STORED: Final = Side(NOTHING, None, 0)


class Race(NamedTuple):
    """Two writers met: the second one started from `base`, found `current`, and wanted `attempted`.

    `base` is None when the history no longer has it; the attempted value of a removal is `NOTHING`.
    """

    base: Side | None
    current: Side
    attempted: Side

    def merge(self) -> Merge | None:
        """Return the three-way merge, None without a base."""
        return None if self.base is None else merge(self.base.value, self.current.value, self.attempted.value)


def current_side(item: Item, now: datetime) -> Side:
    """Return what a reader would see now; of a value that was forgotten, who forgot it."""
    if not is_live(item, now) or item.value is None:
        return Side(NOTHING, None, 0, item.writer, item.changed_at) if item.change == "forgotten" else _NOTHING_STORED
    return Side(loads(item.value), item.value, item.version, item.writer, item.changed_at)


def base_side(expected: int, version: Version | None, now: datetime) -> Side | None:
    """Return the side that the writer started from. Version 0 is known without history: nothing was stored."""
    if expected == 0:
        return _NOTHING_STORED
    if version is None or version.value is None or version.expires_at <= now:
        return None
    return Side(loads(version.value), version.value, version.version, version.writer, version.written_at)


def conflict_data(
    race: Race,
    *,
    kind: Kind,
    address: str,
    command: tuple[str, str],
    expected_version: int,
    resolution: Resolution,
    merged: Merge | None,
    limits: Limits,
) -> JsonObject:
    """Return the event's data. `command` is (id, source) of the second writer's command."""
    command_id, command_source = command
    base = race.base
    diff: JsonObject | None = None
    if base is not None:
        diff = {
            "base_to_current": _patch(base, race.current, limits),
            "base_to_attempted": _patch(base, race.attempted, limits),
        }
    return {
        "kind": kind,
        "address": address,
        "command_id": command_id,
        "command_source": command_source,
        "expected_version": expected_version,
        "current_version": race.current.version,
        "base": None if base is None else base.data(limits),
        "current": race.current.data(limits),
        "attempted": race.attempted.data(limits),
        "diff": diff,
        "overlapping_paths": [] if merged is None else _shown_paths(merged, limits),
        "mergeable": merged is not None and merged.possible,
        "resolution": resolution,
    }


def _shown_paths(merged: Merge, limits: Limits) -> list[JsonValue]:
    """Return the first overlapping paths, as many as fit: the names in them may be as long as a value is large."""
    shown: list[JsonValue] = []
    left = limits.conflict_value_bytes
    for path in merged.overlapping[:_MAX_PATHS]:
        text = pointer(path)
        left -= len(dumps(text))
        if left < 0:
            break
        shown.append(text)
    return shown


def _patch(base: Side, target: Side, limits: Limits) -> JsonValue:
    """Return the RFC 6902 patch, None where a value, or the patch itself, is too large to show."""
    if any(side.body is not None and len(side.body) > limits.conflict_value_bytes for side in (base, target)):
        return None
    patch = cast("JsonValue", make_patch(base.value, target.value))
    return patch if len(dumps(patch)) <= 2 * limits.conflict_value_bytes else None
