"""Simulated runs: memory requests are decided on an overlay, by the same rules as real ones.

What the overlay lacks is read once from real memory and kept, so that two simulations of one input give one
result whatever others write meanwhile; nothing is ever sent to real memory. What would have been written is
captured: port `memory`, one effect for each change.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import cast
from uuid import UUID

from msgspec.structs import asdict

from schemas.address import parse_address
from schemas.envelope import Event
from schemas.exact_json import JsonObject, JsonValue, Raw, dumps, loads
from schemas.identity import key_of
from workers.logic.memory.commands import Command, ListRecords, item_address, understand
from workers.logic.memory.conversations import Listing, overlaid
from workers.logic.memory.decide import Decision, Situation, decide
from workers.logic.memory.items import Item
from workers.logic.memory.timestamps import timestamp
from workers.logic.variables import entries
from workers.logic.variables.open_requests import Request
from workers.logic.variables.references import MISSING
from workers.logic.variables.state import ExecutionState
from workers.logic.variables.step import RealMemory, Step

#: A seeded or captured value whose life nobody stated outlives the run.
_SEED_LIFE = timedelta(days=30)


class NeedsMemory(Exception):  # noqa: N818 - a question to the caller, not an error
    """The fold needs real items that were not passed in: read them and apply the event again."""

    def __init__(self, addresses: frozenset[str], prefixes: frozenset[str]) -> None:
        super().__init__(f"items of real memory: {', '.join((*addresses, *prefixes))}")
        self.addresses = addresses
        self.prefixes = prefixes


def settings_of(state: ExecutionState) -> JsonObject | None:
    """Return what `simulation` says of the run; None for a real one."""
    if not state.simulated:
        return None
    asked = cast("JsonObject", state.read(entries.META))["simulation"]
    return asked if isinstance(asked, dict) else {}


def seed(step: Step, workflow: str) -> None:
    """Put the items of `simulation.memory` into the overlay: they win over the real ones."""
    asked = settings_of(step.state) or {}
    for item in cast("list[JsonObject]", asked.get("memory") or []):
        subject = item["subject"]
        shared = item.get("scope") == "shared"
        address = item_address(
            step.state.key.tenant,
            scope="shared" if shared else "workflow",
            workflow=None if shared else workflow,
            subject=(str(subject["kind"]), str(subject["id"])) if isinstance(subject, dict) else None,
            key=str(item["key"]),
        )
        version = cast("int", item.get("version") or 1)
        now = step.context.now
        _keep(
            step.state,
            Item(
                address,
                version,
                sequence=version,
                type=str(item["type"]),
                value=dumps(item["value"]),
                change="written",
                changed_at=now,
                changed_by=step.key,
                expires_at=now + _SEED_LIFE,
            ),
        )


def answer(step: Step, request: Request, command_event: Event) -> Event:
    """Decide a command on the overlay; return the outcome that real memory would have given.

    Raises `NeedsMemory` when an item of real memory is needed that was not passed in.
    """
    memory = step.context.memory or RealMemory()
    command = understand(command_event, memory.rules)
    item = _item(step, memory, command)
    situation = Situation(item, step.context.now, memory.rules, _no_history, _listing(step, memory, command))
    decision = decide(command, situation)
    if decision.item is not None:
        _keep(step.state, decision.item)
        _capture(step.state, request, decision)
    body = cast("JsonObject", loads(dumps(decision.outcome)))
    return step.caused(decision.outcome_type, "outcome", body, cause=key_of(command_event))


def _no_history(_: tuple[str, int]) -> None:
    """Return nothing: a simulation keeps no past, so its conflicts show no base."""


def _item(step: Step, memory: RealMemory, command: Command) -> Item:
    address = command.address
    if address is None or isinstance(command.request, ListRecords):
        return Item(address or "")
    held = step.state.read(entries.overlay(address))
    if isinstance(held, dict):
        return _item_of(address, held)
    if not _is_visible(step.state, address):
        return Item(address)
    if address not in memory.items:
        raise NeedsMemory(frozenset({address}), frozenset())
    item = memory.items[address]
    _keep(step.state, item)
    return item


def _is_visible(state: ExecutionState, address: str) -> bool:
    """Tell whether real memory may be asked: items of no subject always, a subject's only when it was given."""
    parsed = parse_address(address)
    if parsed.kind is None or parsed.kind == "conversation":
        return True
    subject = (settings_of(state) or {}).get("subject")
    return isinstance(subject, dict) and (subject["kind"], subject["id"]) == (parsed.kind, parsed.id)


def _listing(step: Step, memory: RealMemory, command: Command) -> Callable[[str], Listing]:
    request = command.request
    if isinstance(request, ListRecords) and request.prefix not in memory.listings:
        raise NeedsMemory(frozenset(), frozenset({request.prefix}))

    def listing(prefix: str) -> Listing:
        real = memory.listings[prefix]
        held = [
            _item_of(entries.split(entry)[1], cast("JsonObject", step.state.read(entry)))
            for entry in step.state.entries_below(entries.overlay(""))
        ]
        return overlaid(real, prefix, {item.address: item for item in real.records}, held, step.context.now)

    return listing


def _capture(state: ExecutionState, request: Request, decision: Decision) -> None:
    item = cast("Item", decision.item)
    effect: dict[str, object] = {
        "port": "memory",
        "type": request.type,
        "node_id": request.node_id,
        "address": item.address,
        "change": item.change,
        "version": item.version,
    }
    if item.value is not None:
        effect["value_type"] = item.type
        effect["value"] = Raw(item.value)
    if item.expires_at is not None:
        effect["expires_at"] = timestamp(item.expires_at)
    state.write(entries.effect(request.number), effect)


def effects_of(state: ExecutionState) -> list[JsonValue]:
    """Return what the run would have changed, in its order."""
    numbered = sorted(state.entries_below(entries.EFFECT), key=lambda entry: int(entry.removeprefix(entries.EFFECT)))
    found = (state.read(entry) for entry in numbered)
    return [effect for effect in found if effect is not MISSING]


# -- the overlay's entries


def _keep(state: ExecutionState, item: Item) -> None:
    fields: dict[str, object] = {
        name: value
        for name, value in asdict(item).items()
        if value not in (None, 0) and name not in ("address", "value", "writer")
    }
    for name in ("value", "writer"):
        data = getattr(item, name)
        if data is not None:
            fields[name] = Raw(data)
    for name in ("changed_at", "expires_at", "changed_by"):
        if name in fields:
            fields[name] = str(fields[name])
    state.write(entries.overlay(item.address), fields)


def _item_of(address: str, fields: JsonObject) -> Item:
    known: dict[str, object] = dict(fields)
    for name in ("value", "writer"):
        if name in known:
            known[name] = dumps(known[name])
    for name in ("changed_at", "expires_at"):
        if name in known:
            known[name] = datetime.fromisoformat(str(known[name]))
    if "changed_by" in known:
        known["changed_by"] = UUID(str(known["changed_by"]))
    return Item(address, **known)  # type: ignore[arg-type]
