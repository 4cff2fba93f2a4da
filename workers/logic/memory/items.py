"""What is stored at one address, and what it looked like at an earlier version."""

from datetime import datetime
from typing import Literal, NamedTuple
from uuid import UUID

from msgspec import Struct

Change = Literal["written", "forgotten", "expired"]


class Item(Struct, frozen=True, gc=False):
    """One row: the newest state of an address.

    `version` is the highest one ever used: it outlives forget and expiry, so that no number comes twice (no ABA).
    `value` is compact JSON; None says that the item is gone, or was never written.
    """

    address: str
    version: int = 0
    #: Counts every change, expiry and forget included; readers of `memory.changed` keep the highest.
    sequence: int = 0
    #: The live version that the newest change replaced, 0 when there was none.
    previous_version: int = 0
    #: The history up to here was erased, when the item was forgotten or expired.
    erased_version: int = 0
    type: str | None = None
    value: bytes | None = None
    #: JSON of who made the newest change; None when it was the clock.
    writer: bytes | None = None
    change: Change | None = None
    #: When that change happened; for a live item, when it was written.
    changed_at: datetime | None = None
    #: The key of the event that caused it.
    changed_by: UUID | None = None
    expires_at: datetime | None = None
    traceparent: str | None = None


class Version(NamedTuple):
    """One entry of an item's history."""

    address: str
    version: int
    type: str
    #: Compact JSON; None where the history keeps no values of its own (conversations).
    value: bytes | None
    writer: bytes | None
    written_at: datetime
    expires_at: datetime
    command_key: UUID


def is_live(item: Item, now: datetime) -> bool:
    """Tell whether there is a value that has not expired."""
    return item.value is not None and item.expires_at is not None and item.expires_at > now


def live_version(item: Item, now: datetime) -> int:
    """Return the version that a reader sees: 0 when nothing is stored, whatever was before."""
    return item.version if is_live(item, now) else 0


def has_expired(item: Item, now: datetime) -> bool:
    """Tell whether the item holds a value whose time is over: nobody sees it, it waits to be purged."""
    return item.value is not None and not is_live(item, now)


def gone(
    item: Item,
    change: Literal["forgotten", "expired"],
    *,
    now: datetime,
    cause: UUID,
    writer: bytes | None,
    traceparent: str | None,
) -> Item:
    """Return the item without its value. It takes no version; the history so far is erased."""
    return Item(
        address=item.address,
        version=item.version,
        sequence=item.sequence + 1,
        previous_version=item.version,
        erased_version=item.version,
        writer=writer,
        change=change,
        changed_at=now,
        changed_by=cause,
        traceparent=traceparent,
    )
