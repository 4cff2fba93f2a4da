"""Commands of a batch -> what was decided before of them, and their items: from PostgreSQL, or at hand.

Nothing here is locked. What a batch rests on is true when the statement that writes it has found it unchanged.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from workers.logic.memory.commands import Command
from workers.logic.memory.items import Item
from workers.memory import store
from workers.memory.intake import Addresses
from workers.memory.recent import RecentItems
from workers.memory.store import StoredOutcome
from workers.runtime.items import read_items
from workers.runtime.postgres import Connection


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of a batch's commands and items; `now` is later than every change that is seen here."""

    now: datetime
    outcomes: Mapping[UUID, StoredOutcome] = field(default_factory=dict)
    items: Mapping[str, Item] = field(default_factory=dict)
    #: Addresses of those items that were at hand: others may have changed them.
    remembered: AbstractSet[str] = frozenset()

    def after(self, items: Mapping[str, Item], outcomes: Iterable[StoredOutcome]) -> "Found":
        """Return the same once these are written, which may be so already."""
        newer = {
            address: item
            for address, item in items.items()
            if address not in self.items or self.items[address].sequence < item.sequence
        }
        decided = {outcome.command_key: outcome for outcome in outcomes}
        return replace(self, outcomes={**self.outcomes, **decided}, items={**self.items, **newer})


async def look_up(
    connection: Connection, commands: Sequence[Command], addresses: Addresses, recent: RecentItems | None
) -> Found:
    """Look up what is known of commands, then items (see queries.sql): those that are not in `recent`."""
    now, outcomes = await store.read_known(connection, [command.key for command in commands])
    remembered = {} if recent is None else recent.find(addresses.locked, now)
    wanted = [*(addresses.locked - remembered.keys()), *addresses.read]
    if not wanted:
        return Found(now, outcomes, remembered, remembered.keys())
    now, items = await read_items(connection, wanted)
    return Found(now, outcomes, {**remembered, **items}, remembered.keys())
