"""A plain model of durable memory: dicts and integers, one command after the other, written from the contract alone.

It knows nothing of rows, batches, locks or bytes. Time is a number of seconds; documents are flat objects.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from schemas.envelope import Event
from tests.support.memory_store import START

DEFAULT_S = 30 * 86400
RECORD_S = 36525 * 86400
TYPES = {"n": "Integer", "doc": "Json", "list": "Integer[]"}
#: Stands for a value that is not there; null is a value.
NOTHING = "(nothing)"


def time_text(second: int) -> str:
    """Spell a time as the contract does."""
    return f"{(START + timedelta(seconds=second)).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


class Entry(NamedTuple):
    """A version."""

    value: Any
    writer: dict[str, str]
    at: int
    until: int


@dataclass
class Slot:
    """One item: the count outlives the value."""

    count: int = 0
    changes: int = 0
    erased: int = 0
    history: dict[int, Entry] = field(default_factory=dict)
    #: Whether the newest version was neither forgotten nor purged.
    stored: bool = False
    #: Who forgot it, and when, until it is written again.
    forgotten: tuple[dict[str, str], int] | None = None


class Answer(NamedTuple):
    """What a command comes to: outcome, and the race that is reported, if any."""

    type: str
    data: dict[str, Any]
    race: dict[str, Any] | None = None


@dataclass
class Model:
    """The rules once more, as plainly as can be."""

    second: int = 0
    slots: dict[str, Slot] = field(default_factory=dict)
    known: dict[str, tuple[Event, Answer]] = field(default_factory=dict)

    # -- what is stored

    def slot(self, name: str) -> Slot:
        return self.slots.setdefault(name, Slot())

    def live(self, name: str) -> Entry | None:
        slot = self.slot(name)
        entry = slot.history.get(slot.count) if slot.stored else None
        return entry if entry is not None and entry.until > self.second else None

    def version(self, name: str) -> int:
        return self.slot(name).count if self.live(name) is not None else 0

    def kept(self, name: str) -> dict[int, Any]:
        """The versions that people may see."""
        slot = self.slot(name)
        return {
            number: entry.value
            for number, entry in slot.history.items()
            if number > slot.erased and entry.until > self.second
        }

    def purge(self) -> None:
        """What the sweep does: nobody sees a difference but in the count of changes."""
        for slot in self.slots.values():
            entry = slot.history.get(slot.count)
            if slot.stored and entry is not None and entry.until <= self.second:
                slot.stored, slot.erased = False, slot.count
                slot.changes += 1

    # -- commands

    def apply(self, event: Event) -> Answer | None:
        """Apply a command; None for an id that came before with other content."""
        if event.id in self.known:
            before, answer = self.known[event.id]
            same = (before.type, before.subject, before.data) == (event.type, event.subject, event.data)
            return answer if same else None
        group, _, what = event.type.partition(".")
        answer = getattr(self, f"_{group}_{what}")(event, event.data)
        self.known[event.id] = event, answer
        return answer

    def _memory_read(self, event: Event, data: dict[str, Any]) -> Answer:
        entry = self.live(data["key"])
        if entry is None:
            return Answer("memory.missing", {"version": 0})
        stored, wanted = TYPES[data["key"]], data["type"]
        if wanted in (stored, "Json", stored.replace("Integer", "Decimal")):
            read: dict[str, Any] = {"value": entry.value}
        elif wanted == stored.replace("Integer", "String"):
            value = entry.value
            texts = [str(part) for part in value] if isinstance(value, list) else str(value)
            read = {"value": texts, "converted_from": stored}
        else:
            return Answer("memory.rejected", {"code": "type_mismatch"})
        times = {"written_at": time_text(entry.at), "expires_at": time_text(entry.until)}
        return Answer("memory.found", {**read, "type": wanted, "version": self.version(data["key"]), **times})

    def _memory_write(self, event: Event, data: dict[str, Any]) -> Answer:
        key, value = data["key"], data["value"]
        expected, seen = data.get("expected_version"), data.get("read_version")
        if expected is not None and expected != self.version(key):
            base, current = self._base(key, expected), self._value(key)
            merged, overlap = (NOTHING, None) if base is None else merge(base, current, value)
            if data.get("on_conflict") == "merge" and overlap == set() and merged != NOTHING:
                race = self._race(event, key, expected, value, overlap, resolution="merged")
                return self._put("memory.written", event, merged, {"merged": True}, race)
            return self._refuse(event, key, expected, value, overlap)
        race = None
        if expected is None and self._unseen(event, key, seen):
            base = self._base(key, seen)
            overlap = None if base is None else merge(base, self._value(key), value)[1]
            race = self._race(event, key, seen, value, overlap, resolution="overwritten")
        return self._put("memory.written", event, value, {}, race)

    def _memory_update(self, event: Event, data: dict[str, Any]) -> Answer:
        key, expected, seen = data["key"], data.get("expected_version"), data.get("read_version")
        entry = self.live(key)
        value = _updated(data, None if entry is None else entry.value)
        if expected is not None and expected != self.version(key):
            base = self._base(key, expected)
            overlap = None if base is None else merge(base, self._value(key), value)[1]
            return self._refuse(event, key, expected, value, overlap)
        race = None
        if data["operation"] == "merge_patch" and expected is None and self._unseen(event, key, seen):
            base, current = self._base(key, seen), self._value(key)
            known = {} if base == NOTHING else base
            overlap = None if base is None else _changed(known, current) & {f"/{name}" for name in data["value"]}
            if overlap != set():
                race = self._race(event, key, seen, value, overlap, resolution="overwritten")
        return self._put("memory.updated", event, value, {"value": value}, race)

    def _memory_forget(self, event: Event, data: dict[str, Any]) -> Answer:
        key, expected = data["key"], data.get("expected_version")
        if expected is not None and expected != self.version(key):
            base = self._base(key, expected)
            overlap = None if base is None else merge(base, self._value(key), NOTHING)[1]
            return self._refuse(event, key, expected, NOTHING, overlap)
        return Answer("memory.forgotten", {"existed": self._forget(event, key)})

    def _forget(self, event: Event, name: str) -> bool:
        slot = self.slot(name)
        existed = self.live(name) is not None
        if existed:
            slot.stored, slot.erased, slot.forgotten = False, slot.count, (_writer(event), self.second)
            slot.changes += 1
        return existed

    def _put(self, outcome: str, event: Event, value: Any, said: dict[str, Any], race: dict[str, Any] | None) -> Answer:
        key, ttl = event.data["key"], event.data.get("ttl", DEFAULT_S)
        before = self.live(key)
        if ttl == "keep":
            ttl = DEFAULT_S if before is None else before.until - self.second
        until = self.second + ttl
        self._store(event, key, value, until)
        version = self.slot(key).count
        if race is not None and race["resolution"] == "overwritten":
            race["attempted"]["version"] = version
        return Answer(outcome, {"version": version, "expires_at": time_text(until), **said}, race)

    def _store(self, event: Event, name: str, value: Any, until: int) -> None:
        slot = self.slot(name)
        slot.count += 1
        slot.changes += 1
        slot.history[slot.count] = Entry(value, _writer(event), self.second, until)
        slot.stored, slot.forgotten = True, None

    # -- races

    def _value(self, key: str) -> Any:
        entry = self.live(key)
        return NOTHING if entry is None else entry.value

    def _base(self, key: str, version: int) -> Any:
        """What a writer that knew this version started from; None when it is not kept any more."""
        return NOTHING if version == 0 else self.kept(key).get(version)

    def _unseen(self, event: Event, key: str, seen: int | None) -> bool:
        entry = self.live(key)
        if entry is None or seen is None or seen >= self.slot(key).count:
            return False
        return "execution_id" not in entry.writer or entry.writer["execution_id"] != event.subject

    def _refuse(self, event: Event, key: str, expected: int, value: Any, overlap: set[str] | None) -> Answer:
        race = self._race(event, key, expected, value, overlap, resolution="rejected")
        said = {"expected_version": expected, "current_version": self.version(key)}
        return Answer("memory.conflicted", said, race)

    def _race(
        self, event: Event, key: str, expected: int, value: Any, overlap: set[str] | None, *, resolution: str
    ) -> dict[str, Any]:
        base: dict[str, Any] | None = None
        if expected == 0:
            base = {"version": 0, "value": None}
        elif expected in self.kept(key):
            base = _side(expected, self.slot(key).history[expected])
        entry, forgotten = self.live(key), self.slot(key).forgotten
        current: dict[str, Any] = {"version": 0, "value": None}
        if entry is not None:
            current = _side(self.slot(key).count, entry)
        elif forgotten is not None:
            current |= {"writer": forgotten[0], "written_at": time_text(forgotten[1])}
        merged = NOTHING if base is None else merge(self._base(key, expected), self._value(key), value)[0]
        return {
            "kind": "lost_update" if resolution == "overwritten" else "conditional_write",
            "expected_version": expected,
            "current_version": current["version"],
            "base": base,
            "current": current,
            "attempted": {
                "version": None,
                "value": None if value == NOTHING else value,
                "writer": _writer(event),
                "written_at": time_text(self.second),
            },
            "overlapping_paths": sorted(overlap or ()),
            "mergeable": overlap == set() and merged != NOTHING,
            "resolution": resolution,
        }

    # -- conversations

    def _conversation_add(self, event: Event, data: dict[str, Any]) -> Answer:
        entry = self.live(data["id"])
        record = {"created_at": time_text(self.second), "messages": []} if entry is None else entry.value
        messages = [*record["messages"], {"role": data["role"], "content": data["content"]}]
        self._store(event, data["id"], {**record, "messages": messages}, self.second + RECORD_S)
        return Answer("conversation.added", {"success": True, "memories": messages, "count": len(messages)})

    def _conversation_get(self, event: Event, data: dict[str, Any]) -> Answer:
        entry = self.live(data["id"])
        messages = [] if entry is None else entry.value["messages"]
        chosen = _limited(messages, data)
        order = data.get("sort_order", "asc")
        told = {"limit": data.get("limit"), "sort_order": order, "total_count": len(messages), "count": len(chosen)}
        return Answer("conversation.got", {"success": True, "memories": chosen, **told})

    def _conversation_get_all(self, event: Event, data: dict[str, Any]) -> Answer:
        role, records, total = data.get("filter_type"), [], 0
        for name in self.slots:
            entry = self.live(name) if name.startswith("s-") else None
            if entry is None:
                continue
            total += 1
            messages = [each for each in entry.value["messages"] if role in (None, each["role"])]
            if messages:
                times = {"created_at": entry.value["created_at"], "updated_at": time_text(entry.at)}
                records.append({"key": name, "type": "agent", "data": messages, **times})
        records.sort(key=lambda record: (record["updated_at"], record["key"]))
        chosen = _limited(records, data)
        return Answer(
            "conversation.listed", {"success": True, "memories": chosen, "count": len(chosen), "total": total}
        )

    def _conversation_delete(self, event: Event, data: dict[str, Any]) -> Answer:
        return Answer("conversation.deleted", {"success": self._forget(event, data["id"])})


def _writer(event: Event) -> dict[str, str]:
    if event.subject is None:
        return {"command_id": event.id, "command_source": event.source}
    return {"execution_id": event.subject}


def _side(version: int, entry: Entry) -> dict[str, Any]:
    return {
        "version": version,
        "value": entry.value,
        "writer": entry.writer,
        "written_at": time_text(entry.at),
    }


def _limited(parts: list[Any], data: dict[str, Any]) -> list[Any]:
    ordered = parts[::-1] if data.get("sort_order") == "desc" else parts
    return ordered[: data.get("limit")]


def _updated(data: dict[str, Any], current: Any) -> Any:
    operand = data.get("value")
    match data["operation"]:
        case "increment":
            return (current or 0) + data.get("by", 1)
        case "max":
            return operand if current is None else max(current, operand)
        case "min":
            return operand if current is None else min(current, operand)
        case "append":
            longer = [*(current or []), operand]
            return longer[-data.get("max_items", len(longer)) :]
        case "union":
            known = list(current or [])
            return known + [part for place, part in enumerate(operand) if part not in known + operand[:place]]
        case _:
            patched = {**(current or {}), **operand}
            return {name: value for name, value in patched.items() if value is not None}


def _changed(base: Any, target: Any) -> set[str]:
    """The pointers at which two values differ; only flat objects have parts."""
    if isinstance(base, dict) and isinstance(target, dict):
        missing = object()
        return {f"/{name}" for name in {*base, *target} if base.get(name, missing) != target.get(name, missing)}
    return set() if base == target else {""}


def merge(base: Any, current: Any, attempted: Any) -> tuple[Any, set[str]]:
    """Merge flat objects three ways; return the result, and our paths that they changed too."""
    theirs, ours = _changed(base, current), _changed(base, attempted)
    overlap = {path for path in ours if path in theirs or "" in theirs or (path == "" and theirs)}
    if not ours or overlap:
        return current, overlap
    if "" in ours:
        return attempted, set()
    merged = dict(current)
    for name in (path[1:] for path in ours):
        if name in attempted:
            merged[name] = attempted[name]
        else:
            del merged[name]
    return merged, set()
