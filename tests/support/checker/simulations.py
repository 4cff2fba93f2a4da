"""Simulated runs: what they read of real memory was there just then, and nothing of theirs ever gets there."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from schemas.exact_json import JsonObject, JsonValue, canonical, dumps, loads
from tests.support.checker.linearizability import Kind, Operation
from tests.support.checker.verdict import Verdict
from tests.support.history import History, event_of
from topics.catalog import Topic
from workers.logic.memory.items import Item
from workers.logic.variables import entries
from workers.logic.variables.simulation import _item_of
from workers.logic.variables.state import ExecutionKey

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
    """Every state of every item that `memory.changed` showed."""

    def __init__(self, history: History) -> None:
        self._states: dict[tuple[str, int], Item] = {}
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
        effects = [_object(data) for entry, data in changes.items() if entry.startswith(entries.EFFECT) and data]
        sequence = int(str(fields.get("sequence", 0))) - sum(effect["address"] == address for effect in effects)
        state = self._states.get((address, sequence)) if sequence else Item(address)
        kept = _item_of(address, fields)
        if kept.sequence != sequence:
            if state is None:
                verdict.add("simulation_wrong", name, f"it met change {sequence} of {address}, which nobody saw")
            # How far its history was erased is not published, and comes into play in what it became only.
            return None if state is None else state._replace(erased_version=kept.erased_version)
        # A state that its worker died with before it was published is known to nobody else.
        if state is not None and _told(kept) != _told(state):
            verdict.add("simulation_wrong", name, f"it keeps {kept} of {address}, memory.changed shows {state}")
        return kept


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
