"""Whether a worker has its share of the partitions, and a broker that leads its group: the check `partitions`."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from workers.runtime.health import Health

CHECK = "partitions"
_WATCH_INTERVAL_S = 0.5


class Membership:
    """Tells the health of a worker how it stands with its consumer group."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._coordinator_answers: Callable[[], bool] | None = None

    def joined(self, coordinator_answers: Callable[[], bool]) -> None:
        """Note that partitions were shared out; ask `coordinator_answers` from now on."""
        self._coordinator_answers = coordinator_answers

    def left(self) -> None:
        """Note that partitions are being shared out anew."""
        self._coordinator_answers = None

    async def watch(self, stop: asyncio.Event) -> None:
        """Look twice a second until `stop`: an idle worker hears of an outage in no other way."""
        while not stop.is_set():
            if self._coordinator_answers is None:
                self._health.red(CHECK, "a rebalance is under way")
            elif not self._coordinator_answers():
                self._health.red(CHECK, "the broker that leads the group does not answer")
            else:
                self._health.green(CHECK)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _WATCH_INTERVAL_S)
