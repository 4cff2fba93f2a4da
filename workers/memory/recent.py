"""The newest states that a worker wrote itself: a busy item is not read again for each of its batches.

Others may have changed an item since, so nothing that rests on this is true until the statement that writes has found
the item unchanged. It saves reading, no more.
"""

from collections.abc import Iterable
from datetime import datetime

from workers.logic.memory.items import Item, has_expired

#: What an item takes besides its value: the object, its texts and times.
_ITEM_BYTES = 1024
#: A part of a processor's cache: from beyond it, looking an item up takes as long as reading it again.
_MAX_BYTES = 512 * 1024


class RecentItems:
    """Items by address; who was written longest ago goes first when they take more than `max_bytes`."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._items: dict[str, Item] = {}

    def find(self, addresses: Iterable[str], now: datetime) -> dict[str, Item]:
        """Return what is known of these addresses, without what has expired: that waits to be swept by anyone."""
        items = self._items
        found = (items[address] for address in addresses if address in items)
        return {item.address: item for item in found if not has_expired(item, now)}

    def add(self, items: Iterable[Item]) -> None:
        """Remember items as they were just written."""
        for item in items:
            before = self._items.pop(item.address, None)
            if before is not None:
                self._bytes -= _bytes_of(before)
            self._items[item.address] = item
            self._bytes += _bytes_of(item)
        while self._bytes > self._max_bytes:
            oldest = next(iter(self._items))
            self._bytes -= _bytes_of(self._items.pop(oldest))

    def clear(self) -> None:
        """Forget everything: somebody else has changed something."""
        self._items.clear()
        self._bytes = 0


def _bytes_of(item: Item) -> int:
    return _ITEM_BYTES + len(item.value or b"")
