"""Decision -> the events that tell of it. Ids derive from what caused them, so every delivery gives the same."""

from functools import lru_cache
from typing import cast
from urllib.parse import unquote

from schemas.envelope import Event
from schemas.exact_json import JsonObject, Raw
from schemas.identity import derived_id
from workers.logic.memory.decide import Decision
from workers.logic.memory.items import Item
from workers.logic.memory.timestamps import timestamp

SOURCE = "/tallystick/memory"


def outcome_event(decision: Decision) -> Event:
    """Return the one outcome of a command."""
    command = decision.command
    return Event(
        id=derived_id(command.key, "outcome"),
        source=SOURCE,
        type=decision.outcome_type,
        subject=command.event.subject,
        tenant=command.event.tenant,
        traceparent=command.event.traceparent,
        data=decision.outcome,
    )


def conflict_event(decision: Decision) -> Event | None:
    """Return the report of the race that a command met, if it met one."""
    if decision.conflict is None:
        return None
    command = decision.command
    return Event(
        id=derived_id(command.key, "conflict"),
        source=SOURCE,
        type="memory.conflict_detected",
        subject=command.event.subject,
        tenant=command.event.tenant,
        traceparent=command.event.traceparent,
        data=decision.conflict,
    )


def reply_key(decision: Decision) -> str:
    """Return the Kafka key of an outcome: the execution, else the reply key, else the address."""
    event = decision.command.event
    key = event.subject or event.replykey or decision.command.address
    assert key is not None, "a command that nobody could be answered to is a dead letter"
    return key


def changed_event(item: Item) -> Event:
    """Return the newest state of an item. It is made of the row alone: whoever sends it again sends the same."""
    assert item.changed_by is not None, "a change has a cause"
    assert item.change is not None, "a change has a kind"
    value, at = item.value, item.changed_at
    data: dict[str, object] = {
        "change": item.change,
        "address": item.address,
        "version": 0 if value is None else item.version,
        "previous_version": item.previous_version,
        "sequence": item.sequence,
        "type": item.type,
        "value": None if value is None else Raw(value),
        "writer": None if item.writer is None else Raw(item.writer),
        "written_at": None if value is None or at is None else timestamp(at),
        "expires_at": None if item.expires_at is None else timestamp(item.expires_at),
    }
    return Event(
        id=derived_id(item.changed_by, "changed"),
        source=SOURCE,
        type="memory.changed",
        tenant=tenant_of(item.address),
        traceparent=item.traceparent,
        data=cast("JsonObject", data),
    )


def tenant_of(address: str) -> str:
    """Return the tenant of a canonical address."""
    return _decoded(address[: address.index("/")])


_decoded = lru_cache(maxsize=4096)(unquote)
