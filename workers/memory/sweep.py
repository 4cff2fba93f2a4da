"""Expired items, erased histories and outlived outcomes -> gone, in small steps beside the batches."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Final

from workers.logic.memory.expiry import purge
from workers.logic.memory.items import Item
from workers.memory import store
from workers.memory.compose import change_records
from workers.memory.publication import Publication
from workers.memory.store import Expired
from workers.runtime.crash_points import pass_point
from workers.runtime.health import Health
from workers.runtime.logs import batch_logger
from workers.runtime.postgres import Database
from workers.runtime.retry import retry

#: Rows in a step: milliseconds of locks, so that batches hardly notice.
_STEP: Final = 500


class Sweep:
    """What time does to the memory. Any number of workers may sweep at once: locked rows are passed over."""

    def __init__(
        self,
        database: Database,
        publication: Publication,
        *,
        health: Health,
        stop: asyncio.Event,
        outcome_retention: timedelta,
    ) -> None:
        self._database = database
        self._publication = publication
        self._health = health
        self._stop = stop
        self._outcome_retention = outcome_retention
        self._log = batch_logger(health.worker)

    async def run(self, interval_s: float) -> None:
        """Sweep now, and again after each interval, until asked to stop."""
        while not self._stop.is_set():
            await self.sweep()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), interval_s)

    async def sweep(self) -> None:
        """Do all that is due. Raises `Stopping`."""
        expired = await self._until_done(self._expire)
        while await self._publish_step():
            pass
        erased = await self._until_done(self._erase)
        forgotten = await self._until_done(self._delete_outcomes)
        if expired or erased or forgotten:
            self._log.info("swept", action="sweep", expired=expired, versions=erased, outcomes=forgotten)

    async def _until_done(self, step: Callable[[int], Awaitable[tuple[int, int]]]) -> int:
        """Repeat a step, which takes how many rows to pass over and returns (done, passed over), to the end."""
        total = passed_over = 0
        while not self._stop.is_set():
            attempt = partial(step, passed_over)
            done, skipped = await retry(attempt, name="postgres", health=self._health, stop=self._stop)
            total += done
            passed_over += skipped
            if done + skipped < _STEP:
                break
        return total

    async def _expire(self, start: int) -> tuple[int, int]:
        """Take the values of expired items. Their changes are noted in the same transaction: none can be lost."""
        async with self._database.transaction() as connection:
            now, overdue = await store.find_expired(connection, _STEP, start)
            if now is None:
                return 0, 0
            locked = await store.lock_unlocked_items(connection, sorted({entry.address for entry in overdue}))
            step = purge(overdue, locked, now)
            if step.items:
                await store.expire_items(connection, step.items)
                await store.note_erasures(connection, {item.address: item.erased_version for item in step.items})
            await store.delete_versions(connection, [Expired(*version) for version in step.versions])
        self._health.metrics.expired.inc(len(step.items))
        return len(step.versions), len(overdue) - len(step.versions)

    async def _publish_step(self) -> bool:
        """Publish noted changes, then strike them off: a kill in between publishes the same again."""
        items = await retry(self._unpublished, name="postgres", health=self._health, stop=self._stop)
        if not items:
            return False
        pass_point("before_publishing_expiry")
        await self._publication.publish([record for item in items for record in change_records(item)])
        await self._publication.settle(items)

        async def strike_off() -> None:
            async with self._database.session() as connection:
                await store.delete_unpublished(connection, items)

        await retry(strike_off, name="postgres", health=self._health, stop=self._stop)
        return True

    async def _unpublished(self) -> list[Item]:
        async with self._database.session() as connection:
            return await store.read_unpublished(connection, _STEP)

    async def _erase(self, _: int) -> tuple[int, int]:
        """Erase a step of histories. An item whose history is gone already is progress too."""
        async with self._database.session() as connection:
            return await store.erase_history(connection, _STEP)

    async def _delete_outcomes(self, _: int) -> tuple[int, int]:
        async with self._database.session() as connection:
            return await store.delete_outcomes(connection, self._outcome_retention, _STEP), 0
