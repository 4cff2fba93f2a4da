"""Items of durable memory, for those who only read them: the memory worker, and simulated runs."""

from collections.abc import Sequence
from datetime import datetime

from workers.logic.memory.conversations import MAX_RECORD_BYTES, Listing
from workers.logic.memory.items import Item
from workers.runtime.postgres import Connection
from workers.runtime.queries import load_queries

_QUERIES = load_queries(__file__, "items.sql")
#: A listing's outcome takes 256 KiB; a filter may pass over what comes first.
_LISTING_BYTES = 2 * MAX_RECORD_BYTES


async def read_items(connection: Connection, addresses: Sequence[str]) -> tuple[datetime, dict[str, Item]]:
    """Return the clock when the items were read, and the rows of those addresses that have one."""
    rows = await connection.fetch(_QUERIES["read_items"], addresses)
    found = [Item(*row[1:]) for row in rows if row[1] is not None]
    return rows[0]["now"], {item.address: item for item in found}


async def list_records(connection: Connection, prefix: str, now: datetime) -> Listing:
    """Return the conversation records whose addresses start with `prefix`, which ends in a slash."""
    after_prefix = f"{prefix[:-1]}0"  # the character after the slash: exactly the addresses with the prefix lie between
    rows = await connection.fetch(_QUERIES["list_records"], prefix, after_prefix, now, _LISTING_BYTES)
    total = rows[0]["total"] if rows else 0
    return Listing([Item(*row[:-1]) for row in rows], total, truncated=len(rows) < total)
