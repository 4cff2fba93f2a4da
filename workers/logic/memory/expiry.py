"""Which items the clock takes away, and which entries of the history go with them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from schemas.identity import event_key
from workers.logic.memory.events import SOURCE, tenant_of
from workers.logic.memory.items import Item, gone, has_expired, is_live


@dataclass(frozen=True, slots=True)
class Purge:
    """A step of the sweep: items without their values, and the history entries to delete."""

    items: list[Item]
    versions: list[tuple[str, int]]


def purge(overdue: Iterable[tuple[str, int]], locked: Mapping[str, Item], now: datetime) -> Purge:
    """Return what becomes of `overdue` history entries (address, version) whose items are locked.

    An item goes only if it still has that version: one that was written again meanwhile lives on, and only the old
    entry goes. Items that are not locked are left for the next step.
    """
    items: list[Item] = []
    versions: list[tuple[str, int]] = []
    for address, version in overdue:
        item = locked.get(address)
        if item is None or (item.version == version and is_live(item, now)):
            continue
        versions.append((address, version))
        if item.version == version and has_expired(item, now):
            items.append(_expired(item, now))
    return Purge(items, versions)


def _expired(item: Item, now: datetime) -> Item:
    """Return the item without its value. No event caused it, so its id is made of what changed."""
    cause = event_key(tenant_of(item.address), SOURCE, f"expired:{item.address}:{item.sequence + 1}")
    return gone(item, "expired", now=now, cause=cause, writer=None, traceparent=None)
