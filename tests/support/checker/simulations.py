"""Simulated runs: what they read of real memory was there just then, and nothing of theirs ever gets there."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from msgspec import structs

from schemas.exact_json import JsonObject, JsonValue, canonical, dumps, loads
from tests.support.checker.commands import Answered
from tests.support.checker.linearizability import Kind, Operation
from tests.support.checker.rows import is_conversation
from tests.support.checker.verdict import Verdict
from tests.support.history import History, event_of
from topics.catalog import Topic
from workers.logic.memory.commands import Update, Write
from workers.logic.memory.conversations import RECORD_TYPE
from workers.logic.memory.items import Item
from workers.logic.variables import entries
from workers.logic.variables.simulation import _item_of
from workers.logic.variables.state import ExecutionKey

#: Stands for a value that did not come into play.
_SOMETHING = b'{"created_at":"","messages":[]}'
_REAL = (Topic.MEMORY_COMMANDS, Topic.MEMORY_RESULTS, Topic.MEMORY_CONFLICTS)


class Seen(NamedTuple):
    """A simulated run read an item of real memory between two moments (seconds); 0 is that nothing was there."""

    name: str
    address: str
    version: int
    invoked: float
    returned: float

    @property
    def operation(self) -> Operation:
        """Return it as one of the item's operations."""
        return Operation(self.name, Kind.OBSERVE, self.invoked, self.returned, self.version)


class RealStates:
    """Every state of every item that `memory.changed` showed, and every value that an outcome tells."""

    def __init__(self, history: History, answered: Iterable[Answered] = ()) -> None:
        self._states: dict[tuple[str, int], Item] = {}
        self._values: dict[tuple[str | None, int], tuple[str, bytes]] = {}
        for each in answered:
            request, data = each.command.request, each.outcome.data
            if isinstance(request, (Write, Update)) and each.outcome.type in ("memory.written", "memory.updated"):
                value = dumps(data["value"]) if "value" in data else request.body  # type: ignore[union-attr]
                self._values[each.command.address, int(str(data["version"]))] = request.type, value
        for record in history.log(Topic.MEMORY_CHANGES):
            event = event_of(record)
            if event is not None:
                item = _shown(event.data)
                self._states[item.address, item.sequence] = item

    def pinned(self, name: str, address: str, changes: Mapping[str, bytes | None], verdict: Verdict) -> Item | None:
        """Return the real item that a revision read first, as its changes tell; None if they tell nothing possible.

        The overlay holds it as the revision left it: each captured effect is one change after what was read.
        """
        held = changes.get(entries.overlay(address))
        if held is None:
            verdict.add("simulation_wrong", name, f"it read {address} and keeps nothing of it")
            return None
        fields = _object(held)
        captured = [_object(data) for entry, data in changes.items() if entry.startswith(entries.EFFECT) and data]
        effects = [str(effect["change"]) for effect in captured if effect["address"] == address]
        kept = _item_of(address, fields)
        sequence = kept.sequence - len(effects)
        state = self._states.get((address, sequence)) if sequence else Item(address)
        if not effects:
            if state is not None and _told(kept) != _told(state):
                verdict.add("simulation_wrong", name, f"it keeps {kept} of {address}, memory.changed shows {state}")
            return kept
        if state is None:
            verdict.counts["states met that were not published"] += 1
            state = self._before(kept, effects)
        # How far its history was erased is not published, and comes into play in what it became only.
        return structs.replace(state, erased_version=kept.erased_version)

    def _before(self, kept: Item, effects: Sequence[str]) -> Item:
        """Return what an item was before so many changes, where its worker died before it told anybody."""
        version = kept.version - effects.count("written")
        before = Item(kept.address, version, kept.sequence - len(effects))
        if len(effects) == 1 and not kept.previous_version:
            return before
        value: bytes | None = None
        type_ = RECORD_TYPE
        if not is_conversation(kept.address):
            type_, value = self._values.get((kept.address, version), ("Json", None))
        elif kept.value is not None:
            record = _object(kept.value)
            messages = record["messages"]
            assert isinstance(messages, list), "written by this project"
            value = dumps({**record, "messages": messages[: len(messages) - len(effects)]})
        return structs.replace(
            before, type=type_, value=value or _SOMETHING, expires_at=datetime.max.replace(tzinfo=UTC)
        )


def _object(data: bytes) -> JsonObject:
    value = loads(data)
    assert isinstance(value, dict), "entries of a simulation are objects"
    return value


def _shown(data: JsonObject) -> Item:
    live = data["change"] == "written"
    return Item(
        str(data["address"]),
        version=int(str(data["version"] if live else data["previous_version"])),
        sequence=int(str(data["sequence"])),
        previous_version=int(str(data["previous_version"])),
        type=None if data["type"] is None else str(data["type"]),
        value=dumps(data["value"]) if live else None,
        writer=None if data["writer"] is None else dumps(data["writer"]),
        change=data["change"],  # type: ignore[arg-type]
        changed_at=_time(data["written_at"]),
        expires_at=_time(data["expires_at"]),
    )


def _time(text: JsonValue) -> datetime | None:
    return None if text is None else datetime.fromisoformat(str(text))


def _told(item: Item) -> tuple[int, str | None, bytes | None]:
    return item.version, item.type, None if item.value is None else canonical(loads(item.value))


def check_leaks(history: History, simulated: Iterable[ExecutionKey]) -> Verdict:
    """Look for commands, outcomes, conflicts and changes that simulated runs caused."""
    verdict = Verdict()
    runs = set(simulated)
    verdict.counts["simulated executions"] += len(runs)
    for topic in _REAL:
        for record in history.log(topic):
            event = event_of(record)
            if event is not None and ExecutionKey(event.tenant, str(event.subject)) in runs:
                verdict.add(
                    "simulation_leaked", f"execution {event.tenant}/{event.subject}", f"{event.type} {event.id}"
                )
    for record in history.log(Topic.MEMORY_CHANGES):
        event = event_of(record)
        writer = None if event is None else event.data["writer"]
        if event is None or not isinstance(writer, dict):
            continue
        if ExecutionKey(event.tenant, str(writer.get("execution_id"))) in runs:
            what = f"change {event.data['sequence']} of {event.data['address']}"
            verdict.add("simulation_leaked", f"execution {event.tenant}/{writer['execution_id']}", what)
    return verdict
