"""Conversation records (seed 004): an item whose value is a list of messages.

A record lies at scope `workflow`, kind `conversation`, the record's id, key `messages`; so versions, locks and
changes are those of every item. It is kept until it is deleted (the longest retention), and its history keeps no
copies of the list: the messages are the history.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Final, Literal
from urllib.parse import unquote

from schemas.address import Address, format_address
from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue, dumps, loads
from workers.logic.memory.items import Item, is_live
from workers.logic.memory.timestamps import timestamp

#: The stored type: not a type that `memory.write` can declare, so that nothing else can overwrite a record.
RECORD_TYPE: Final = "conversation"
RECORD_KEY: Final = "messages"
#: What the contract calls the type of a record (seed 004).
PUBLIC_TYPE: Final = "agent"
#: Eight outcomes' worth of messages; a record is rewritten at each message, and must fit into one Kafka record.
MAX_RECORD_BYTES: Final = 2 * 1024 * 1024
SortOrder = Literal["asc", "desc"]


@lru_cache(maxsize=65536)
def record_address(tenant: str, workflow: str, record_id: str) -> str:
    """Return the canonical address of a record. Raises `Rejection` (`address_invalid`, `address_too_long`)."""
    return format_address(Address(tenant, "workflow", workflow, RECORD_TYPE, record_id, RECORD_KEY))


@lru_cache(maxsize=4096)
def records_address(tenant: str, workflow: str) -> str:
    """Return the address that stands for all of a workflow's records. Raises `Rejection` as `record_address` does."""
    return format_address(Address(tenant, "workflow", workflow, RECORD_TYPE, None, RECORD_KEY))


@lru_cache(maxsize=4096)
def records_prefix(tenant: str, workflow: str) -> str:
    """Return what the addresses of a workflow's records, and of no others, start with."""
    some_record = record_address(tenant, workflow, "x")
    return some_record.removesuffix(f"x/{RECORD_KEY}")


def record_id_of(address: str) -> str:
    """Return the id of the record at an address."""
    segment = address.rsplit("/", 2)[1]
    return unquote(segment)


@dataclass(frozen=True, slots=True)
class Listing:
    """What a store holds below a prefix: the newest `records`, how many there are, whether some were left out."""

    records: Sequence[Item] = ()
    total: int = 0
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Conversation:
    """A record's value."""

    created_at: str
    messages: list[JsonValue] = field(default_factory=list)

    def with_message(self, message: JsonObject) -> "Conversation":
        """Return the record with one more message."""
        return Conversation(self.created_at, [*self.messages, message])

    def body(self) -> bytes:
        """Return the record as it is stored. Raises `Rejection` (`value_too_large`)."""
        body = dumps({"created_at": self.created_at, "messages": self.messages})
        if len(body) > MAX_RECORD_BYTES:
            raise Rejection(
                "value_too_large",
                f"the record would have {len(body)} bytes, {MAX_RECORD_BYTES} are allowed; begin another one",
            )
        return body


def conversation_at(item: Item, now: datetime) -> Conversation | None:
    """Return the record at an item, None when there is none. Raises `Rejection` (`type_mismatch`)."""
    if not is_live(item, now):
        return None
    if item.type != RECORD_TYPE:
        raise Rejection("type_mismatch", f"{item.address} holds a value of type {item.type}, not a conversation")
    assert item.value is not None, "a live item has a value"
    stored = loads(item.value)
    assert isinstance(stored, dict), "records are written by this project only"
    created_at, messages = stored["created_at"], stored["messages"]
    assert isinstance(created_at, str)
    assert isinstance(messages, list)
    return Conversation(created_at, messages)


def added(conversation: Conversation, max_bytes: int) -> JsonObject:
    """Return the data of `conversation.added`: the whole record, or its newest part."""
    kept, truncated = _newest_within(conversation.messages, max_bytes)
    data: JsonObject = {"success": True, "memories": kept, "count": len(conversation.messages)}
    return {**data, "truncated": True} if truncated else data


def got(
    conversation: Conversation | None, record_id: str, *, limit: int | None, sort_order: SortOrder, max_bytes: int
) -> JsonObject:
    """Return the data of `conversation.got`; the limit applies after sorting."""
    messages = conversation.messages if conversation is not None else []
    newest_first = sort_order == "desc"
    chosen = messages[::-1] if newest_first else messages
    chosen = chosen if limit is None else chosen[:limit]
    kept, truncated = _newest_within(chosen[::-1] if newest_first else chosen, max_bytes)
    kept = kept[::-1] if newest_first else kept
    order = "newest first" if newest_first else "oldest first"
    message = (
        f"there is no record {record_id!r}"
        if conversation is None
        else f"{len(kept)} of {len(messages)} messages of record {record_id!r}, {order}"
    )
    data: JsonObject = {
        "success": True,
        "memories": kept,
        "count": len(kept),
        "total_count": len(messages),
        "limit": limit,
        "sort_order": sort_order,
        "message": message,
    }
    return {**data, "truncated": True} if truncated else data


def _newest_within(messages: Sequence[JsonValue], max_bytes: int) -> tuple[list[JsonValue], bool]:
    """Return the longest end of `messages` (oldest first) that fits as a JSON list, and whether some were left out."""
    room = max_bytes - len("[]")
    kept = 0
    for message in reversed(messages):
        room -= len(dumps(message)) + len(",")
        if room < 0:
            break
        kept += 1
    return list(messages[len(messages) - kept :]), kept < len(messages)


def listed(
    listing: Listing, *, limit: int | None, sort_order: SortOrder, role: str | None, now: datetime, max_bytes: int
) -> JsonObject:
    """Return the data of `conversation.listed`: records by their last message, filtered, sorted, then limited."""
    records = [record for item in listing.records if (record := _record(item, role, now)) is not None]
    records.sort(key=_by_update, reverse=sort_order == "desc")
    chosen = records if limit is None else records[:limit]
    kept, cut = _records_within(chosen, max_bytes)
    data: JsonObject = {
        "success": True,
        "memories": kept,
        "count": len(kept),
        "total": listing.total,
        "message": f"{len(kept)} of {listing.total} records{'' if role is None else f' with messages by {role}'}",
    }
    return {**data, "truncated": True} if cut or listing.truncated else data


def _by_update(record: JsonObject) -> tuple[str, str]:
    return str(record["updated_at"]), str(record["key"])


def _record(item: Item, role: str | None, now: datetime) -> JsonObject | None:
    if item.type != RECORD_TYPE:
        return None
    conversation = conversation_at(item, now)
    if conversation is None:
        return None
    assert item.changed_at is not None, "a live item was written at some time"
    messages = [part for part in conversation.messages if role is None or _role_of(part) == role]
    if role is not None and not messages:
        return None
    return {
        "key": record_id_of(item.address),
        "type": PUBLIC_TYPE,
        "data": messages,
        "created_at": conversation.created_at,
        "updated_at": timestamp(item.changed_at),
    }


def _role_of(message: JsonValue) -> JsonValue:
    return message["role"] if isinstance(message, dict) else None


def _records_within(records: Sequence[JsonObject], max_bytes: int) -> tuple[list[JsonValue], bool]:
    """Keep the records with the newest messages, in their order; of the first that does not fit, its newest part."""
    room = max_bytes - len("[]")
    kept: dict[JsonValue, JsonObject] = {}
    for record in sorted(records, key=_by_update, reverse=True):
        size = len(dumps(record)) + len(",")
        if size <= room:
            kept[record["key"]] = record
            room -= size
            continue
        messages = record["data"]
        assert isinstance(messages, list)
        part, _ = _newest_within(messages, room - (size - len(dumps(messages))))
        if part:
            kept[record["key"]] = {**record, "data": part}
        return [kept[record["key"]] for record in records if record["key"] in kept], True
    return list(records), False


def overlaid(
    listing: Listing, prefix: str, before: Mapping[str, Item], after: Iterable[Item], now: datetime
) -> Listing:
    """Return a listing as it is after a batch's changes so far: `before` and `after` are the changed items."""
    changed = [item for item in after if item.address.startswith(prefix)]
    addresses = {item.address for item in changed}
    were = sum(1 for address in addresses if _is_record(before.get(address), now))
    now_there = [item for item in changed if _is_record(item, now)]
    kept = [item for item in listing.records if item.address not in addresses]
    return Listing([*kept, *now_there], listing.total - were + len(now_there), listing.truncated)


def _is_record(item: Item | None, now: datetime) -> bool:
    return item is not None and item.type == RECORD_TYPE and is_live(item, now)
