"""What was committed -> Kafka, acknowledged; and the newest state of each item last in `memory-changes`."""

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial

from topics.publisher import Publisher
from topics.records import Record
from workers.logic.memory.items import Item
from workers.memory import store
from workers.memory.compose import change_records
from workers.runtime.health import Health
from workers.runtime.postgres import Database
from workers.runtime.retry import retry


class Publication:
    """Publishes, through outages, until everything is acknowledged."""

    def __init__(self, database: Database, publisher: Publisher, *, health: Health, stop: asyncio.Event) -> None:
        self._database = database
        self._publisher = publisher
        self._health = health
        self._stop = stop

    async def publish(self, records: Sequence[Record]) -> None:
        """Send and wait for the acknowledgements. Raises `Stopping`."""
        await retry(lambda: self._publisher.publish(records), name="kafka", health=self._health, stop=self._stop)
        for topic, count in Counter(record.topic for record in records).items():
            self._health.metrics.published.labels(self._health.worker, topic.value).inc(count)

    async def settle(self, shown: Collection[Item]) -> None:
        """Make sure that nothing older lies over an item's newest state in the compacted topic. Raises `Stopping`.

        Two workers may commit changes of one item in one order and publish them in the other. Whoever publishes
        looks afterwards whether there is a newer change, and then publishes that: the last one to look finds none.
        """
        while shown:
            newer = partial(self._newer, shown)
            shown = await retry(newer, name="postgres", health=self._health, stop=self._stop)
            await self.publish([record for item in shown for record in change_records(item)])

    async def _newer(self, shown: Collection[Item]) -> list[Item]:
        async with self._database.session() as connection:
            return await store.read_newer(connection, shown)
