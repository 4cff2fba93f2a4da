"""Each event once: a redelivery publishes the same event again."""

from collections import OrderedDict

from schemas.envelope import Event

#: A repetition follows within one batch of a worker that was restarted: thousands of events, not millions.
_REMEMBERED = 100_000


class Once:
    """Remembers the newest ids of a stream that may have no end."""

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        """Remember so many ids."""
        self._remembered = remembered
        self._seen: OrderedDict[tuple[str, str], None] = OrderedDict()

    def is_new(self, event: Event) -> bool:
        """Say whether the event was not seen yet, and remember it."""
        key = (event.source, event.id)
        if key in self._seen:
            return False
        self._seen[key] = None
        if len(self._seen) > self._remembered:
            self._seen.popitem(last=False)
        return True
