"""One command and the item it names -> its outcome, the item afterwards, the race if there was one.

Nothing here asks for the time, ids or stored state: all of it is passed in, so the same call gives the same decision
in a worker, in a simulation, and in a test.
"""

from collections.abc import Callable
from datetime import datetime
from typing import assert_never, cast

from msgspec import Struct

from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue, Raw
from workers.logic.memory.commands import (
    AddMessage,
    Broken,
    Command,
    DeleteRecord,
    Forget,
    GetMessages,
    ListRecords,
    Read,
    Rules,
    Update,
    Write,
    measured,
)
from workers.logic.memory.conflicts import Kind, Race, Resolution, Side, base_side, conflict_data, current_side
from workers.logic.memory.conversations import (
    RECORD_TYPE,
    Conversation,
    Listing,
    added,
    conversation_at,
    got,
    listed,
    record_id_of,
)
from workers.logic.memory.diff import NOTHING, MaybeValue
from workers.logic.memory.items import Item, Version, gone, is_live, live_version
from workers.logic.memory.lost_updates import overlap_of, seen_before_a_loss
from workers.logic.memory.merge import Merge
from workers.logic.memory.retention import Retention, expiry
from workers.logic.memory.timestamps import timestamp
from workers.logic.memory.types import is_wider_or_same, parsed
from workers.logic.memory.updates import updated


class Decision(Struct, frozen=True):
    """What one command comes to. `item` is the state afterwards where it changed."""

    command: Command
    outcome_type: str
    outcome: JsonObject
    item: Item | None = None
    conflict: JsonObject | None = None


class Situation(Struct, frozen=True):
    """What a decision rests on besides the command: the item, its history, the clock, the rules."""

    item: Item
    now: datetime
    rules: Rules
    #: (address, version) -> entry of the history, None when it no longer has it.
    history: Callable[[tuple[str, int]], Version | None]
    listing: Callable[[str], Listing]

    def base(self, expected: int) -> Side | None:
        """Return the version that a writer started from, None when the history no longer has it."""
        version = self.history((self.item.address, expected)) if expected > self.item.erased_version else None
        return base_side(expected, version, self.now)


def decide(command: Command, situation: Situation) -> Decision:
    """Decide one command. Every command has exactly one outcome; a broken rule gives `memory.rejected`."""
    try:
        return _dispatch(command, situation)
    except Rejection as refusal:
        return rejected(command, refusal.reason, refusal.message)


def _dispatch(command: Command, situation: Situation) -> Decision:
    match command.request:
        case Write() as request:
            return _write(command, request, situation)
        case Read() as request:
            return _read(command, request, situation)
        case Update() as request:
            return _update(command, request, situation)
        case Forget() as request:
            return _forget(command, request, situation)
        case AddMessage() as request:
            return _add_message(command, request, situation)
        case GetMessages() as request:
            return _get_messages(command, request, situation)
        case ListRecords() as request:
            return _list_records(command, request, situation)
        case DeleteRecord():
            return _delete_record(command, situation)
        case Broken() as request:
            return rejected(command, request.code, request.message)
        case _:
            assert_never(command.request)


def rejected(command: Command, code: str, message: str) -> Decision:
    """Return the decision that a command breaks a rule; its message names the item."""
    if command.address is not None and command.address not in message:
        message = f"{command.address}: {message}"
    return Decision(command, "memory.rejected", _outcome(command, {"code": code, "message": message}))


def _outcome(command: Command, data: JsonObject) -> JsonObject:
    event = command.event
    if command.address is None:
        return {"command_id": event.id, "command_source": event.source, **data}
    return {"command_id": event.id, "command_source": event.source, "address": command.address, **data}


def _refuse_record(item: Item, now: datetime) -> None:
    if item.type == RECORD_TYPE and is_live(item, now):
        raise Rejection("type_mismatch", f"{item.address} holds a conversation; use conversation.add for it")


def _write(command: Command, request: Write, situation: Situation) -> Decision:
    item, now = situation.item, situation.now
    _refuse_record(item, now)
    current = live_version(item, now)
    if request.expected is not None and request.expected != current:
        return _conflicting_write(command, request, request.expected, situation)
    new = _written(command, request.body, request.type, request.retention, situation)
    conflict = None
    seen = seen_before_a_loss(command, request, current, item)
    if seen is not None:
        attempted = Side(request.value, request.body, new.version, command.writer, now)
        race = Race(situation.base(seen), current_side(item, now), attempted)
        conflict = _lost_update(command, race, race.merge(), seen, situation)
    return Decision(command, "memory.written", _written_outcome(command, new), new, conflict)


def _lost_update(command: Command, race: Race, merged: Merge | None, seen: int, situation: Situation) -> JsonObject:
    return _conflict(
        command, race, situation, merged=merged, kind="lost_update", expected=seen, resolution="overwritten"
    )


def _conflicting_write(command: Command, request: Write, expected: int, situation: Situation) -> Decision:
    item, now = situation.item, situation.now
    attempted = Side(request.value, request.body, None, command.writer, now)
    race = Race(situation.base(expected), current_side(item, now), attempted)
    merged = race.merge()
    if request.merges and merged is not None and merged.possible and item.type == request.type:
        value = cast("JsonValue", merged.value)
        situation.rules.types.check(value, request.type)
        body = measured(value, situation.rules.limits)
        new = _written(command, body, request.type, request.retention, situation)
        outcome = {**_written_outcome(command, new), "merged": True}
        conflict = _conflict(
            command,
            race,
            situation,
            merged=merged,
            kind="conditional_write",
            expected=expected,
            resolution="merged",
        )
        return Decision(command, "memory.written", outcome, new, conflict)
    return _refused(command, race, merged, expected, situation)


def _refused(command: Command, race: Race, merged: Merge | None, expected: int, situation: Situation) -> Decision:
    """Return the decision that a conditional command came too late: nothing changes, and the race is reported."""
    data: JsonObject = {"expected_version": expected, "current_version": live_version(situation.item, situation.now)}
    conflict = _conflict(
        command,
        race,
        situation,
        merged=merged,
        kind="conditional_write",
        expected=expected,
        resolution="rejected",
    )
    return Decision(command, "memory.conflicted", _outcome(command, data), conflict=conflict)


def _conflict(
    command: Command,
    race: Race,
    situation: Situation,
    *,
    merged: Merge | None,
    kind: Kind,
    expected: int,
    resolution: Resolution,
) -> JsonObject:
    return conflict_data(
        race,
        kind=kind,
        address=situation.item.address,
        command=(command.event.id, command.event.source),
        expected_version=expected,
        resolution=resolution,
        merged=merged,
        limits=situation.rules.limits,
    )


def _written(
    command: Command,
    body: bytes,
    type_name: str,
    retention: Retention,
    situation: Situation,
) -> Item:
    """Return the item with a new value. The version count goes on, whatever was."""
    item, now = situation.item, situation.now
    limits = situation.rules.limits
    current = live_version(item, now)
    expires_at = expiry(
        retention,
        now=now,
        kept=item.expires_at if current else None,
        default_seconds=limits.max_ttl_seconds if type_name == RECORD_TYPE else limits.default_ttl_seconds,
    )
    return Item(
        item.address,
        item.version + 1,
        item.sequence + 1,
        current,
        item.erased_version,
        type_name,
        body,
        command.writer,
        "written",
        now,
        command.key,
        expires_at,
        command.event.traceparent,
    )


def _written_outcome(command: Command, item: Item) -> JsonObject:
    assert item.expires_at is not None, "every value expires"
    return _outcome(command, {"version": item.version, "expires_at": timestamp(item.expires_at)})


def _read(command: Command, request: Read, situation: Situation) -> Decision:
    item, now, rules = situation.item, situation.now, situation.rules
    if not is_live(item, now):
        return Decision(command, "memory.missing", _outcome(command, {"version": 0}))
    assert item.value is not None
    assert item.type is not None
    assert item.changed_at is not None
    assert item.expires_at is not None
    stored = parsed(item.value)
    value, converted_from = rules.types.read_as(stored, item.type, request.type)
    data: dict[str, object] = {
        # What was not converted is returned as it is stored, byte for byte.
        "value": Raw(item.value) if converted_from is None else value,
        "type": request.type,
        "version": item.version,
        "written_at": timestamp(item.changed_at),
        "expires_at": timestamp(item.expires_at),
    }
    if converted_from is not None:
        data["converted_from"] = converted_from
    return Decision(command, "memory.found", _outcome(command, cast("JsonObject", data)))


def _forget(command: Command, request: Forget, situation: Situation) -> Decision:
    item, now = situation.item, situation.now
    current = live_version(item, now)
    if request.expected is not None and request.expected != current:
        attempted = Side(NOTHING, None, None, command.writer, now)
        race = Race(situation.base(request.expected), current_side(item, now), attempted)
        return _refused(command, race, race.merge(), request.expected, situation)
    existed = current > 0
    new = _gone(command, situation) if existed else None
    return Decision(command, "memory.forgotten", _outcome(command, {"existed": existed}), new)


def _gone(command: Command, situation: Situation) -> Item:
    return gone(
        situation.item,
        "forgotten",
        now=situation.now,
        cause=command.key,
        writer=command.writer,
        traceparent=command.event.traceparent,
    )


def _update(command: Command, request: Update, situation: Situation) -> Decision:
    item, now, rules = situation.item, situation.now, situation.rules
    _refuse_record(item, now)
    live = is_live(item, now)
    current: MaybeValue = NOTHING
    if live:
        assert item.value is not None
        assert item.type is not None
        if not is_wider_or_same(item.type, request.type):
            raise Rejection(
                "type_mismatch",
                f"the item holds {item.type}, which cannot be updated as {request.type}; name its type, or forget it",
            )
        current = parsed(item.value)
    value = updated(request.operation, current, request.operand, type_name=request.type, max_items=request.max_items)
    rules.types.check(value, request.type)
    body = measured(value, rules.limits)
    if request.expected is not None and request.expected != live_version(item, now):
        attempted = Side(value, body, None, command.writer, now)
        race = Race(situation.base(request.expected), current_side(item, now), attempted)
        return _refused(command, race, race.merge(), request.expected, situation)
    new = _written(command, body, request.type, request.retention, situation)
    assert new.expires_at is not None, "every value expires"
    data: dict[str, object] = {
        "version": new.version,
        "value": Raw(body),
        "expires_at": timestamp(new.expires_at),
    }
    conflict = None
    seen = seen_before_a_loss(command, request, live_version(item, now), item)
    if seen is not None:
        attempted = Side(value, body, new.version, command.writer, now)
        race = Race(situation.base(seen), current_side(item, now), attempted)
        conflict = _lost_patch(command, race, request, seen, situation)
    return Decision(command, "memory.updated", _outcome(command, cast("JsonObject", data)), new, conflict)


def _lost_patch(command: Command, race: Race, request: Update, seen: int, situation: Situation) -> JsonObject | None:
    """Report a merge patch that replaced what others had made; without a base that is assumed: no race goes unseen."""
    overlap = None if race.base is None else overlap_of(request.operand, race)
    if race.base is not None and overlap is None:
        return None
    return _lost_update(command, race, overlap, seen, situation)


def _add_message(command: Command, request: AddMessage, situation: Situation) -> Decision:
    now = situation.now
    record = conversation_at(situation.item, now) or Conversation(timestamp(now))
    record = record.with_message(request.message)
    new = _written(command, record.body(), RECORD_TYPE, None, situation)
    data = added(record, situation.rules.limits.conversation_outcome_bytes)
    return Decision(command, "conversation.added", _outcome(command, data), new)


def _get_messages(command: Command, request: GetMessages, situation: Situation) -> Decision:
    data = got(
        conversation_at(situation.item, situation.now),
        record_id_of(situation.item.address),
        limit=request.limit,
        sort_order=request.sort_order,
        max_bytes=situation.rules.limits.conversation_outcome_bytes,
    )
    return Decision(command, "conversation.got", _outcome(command, data))


def _list_records(command: Command, request: ListRecords, situation: Situation) -> Decision:
    data = listed(
        situation.listing(request.prefix),
        limit=request.limit,
        sort_order=request.sort_order,
        role=request.role,
        now=situation.now,
        max_bytes=situation.rules.limits.conversation_outcome_bytes,
    )
    return Decision(command, "conversation.listed", _outcome(command, data))


def _delete_record(command: Command, situation: Situation) -> Decision:
    record_id = record_id_of(situation.item.address)
    if conversation_at(situation.item, situation.now) is None:
        data: JsonObject = {"success": False, "message": f"there is no record {record_id!r}"}
        return Decision(command, "conversation.deleted", _outcome(command, data))
    data = {"success": True, "message": f"removed record {record_id!r}"}
    return Decision(command, "conversation.deleted", _outcome(command, data), _gone(command, situation))
