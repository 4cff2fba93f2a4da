"""Whether a worker has its share of the partitions, and a broker that leads its group: the check `partitions`."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from aiokafka import AIOKafkaConsumer

from workers.runtime.health import Health

CHECK = "partitions"
_WATCH_INTERVAL_S = 0.5


def trouble_of(consumer: AIOKafkaConsumer) -> str:
    """Return what keeps a consumer from reading all that it subscribed to; empty where nothing does."""
    # aiokafka forgets who leads the group when heartbeats fail.
    if consumer._coordinator.coordinator_id is None:  # noqa: SLF001
        return "the broker that leads the group does not answer"
    cluster = consumer._client.cluster  # noqa: SLF001
    missing = sorted(topic for topic in consumer.subscription() if cluster.partitions_for_topic(topic) is None)
    return f"the broker has no {', '.join(missing)}; run `tally topics create`" if missing else ""


class Membership:
    """Tells the health of a worker how it stands with its consumer group."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._trouble: Callable[[], str] | None = None

    def joined(self, trouble: Callable[[], str]) -> None:
        """Note that partitions were shared out; ask from now on whether there is `trouble`."""
        self._trouble = trouble

    def left(self) -> None:
        """Note that partitions are being shared out anew."""
        self._trouble = None

    async def watch(self, stop: asyncio.Event) -> None:
        """Look twice a second until `stop`: an idle worker hears of an outage in no other way."""
        while not stop.is_set():
            trouble = "a rebalance is under way" if self._trouble is None else self._trouble()
            if trouble:
                self._health.red(CHECK, trouble)
            else:
                self._health.green(CHECK)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _WATCH_INTERVAL_S)
