"""The read side: items as they are and as they were, from PostgreSQL alone. The API and the command line ask here."""

from itertools import starmap

from schemas.address import Address, format_address
from workers.logic.memory.items import Item, Version
from workers.runtime.postgres import Connection
from workers.runtime.queries import load_queries

_QUERIES = load_queries(__file__, "history.sql")
#: Greater than any version.
_NEWEST = 2**62
#: `/` and the character after it: the addresses that start with `TENANT/` lie between.
_SLASH, _AFTER_SLASH = "/", "0"


async def item(connection: Connection, address: str) -> Item | None:
    """Return an item; None when nothing is stored, or what was stored has expired."""
    row = await connection.fetchrow(_QUERIES["read_item"], address)
    return None if row is None else Item(*row)


async def items(
    connection: Connection,
    tenant: str,
    *,
    scope: str | None = None,
    workflow: str | None = None,
    kind: str | None = None,
    subject_id: str | None = None,
    after: str | None = None,
    limit: int = 50,
) -> list[Item]:
    """Return a page of a tenant's live items; `after` is the last address of the page before."""
    encoded = _segment(tenant)
    rows = await connection.fetch(
        _QUERIES["list_items"],
        after or f"{encoded}{_SLASH}",
        f"{encoded}{_AFTER_SLASH}",
        scope,
        None if workflow is None else _segment(workflow),
        None if kind is None else _segment(kind),
        None if subject_id is None else _segment(subject_id),
        limit,
    )
    return list(starmap(Item, rows))


async def versions(connection: Connection, address: str, *, before: int = _NEWEST, limit: int = 50) -> list[Version]:
    """Return a page of what is kept of an item's past, newest first; `before` is the page before's last version."""
    return list(starmap(Version, await connection.fetch(_QUERIES["list_versions"], address, before, limit)))


def _segment(text: str) -> str:
    """Return a segment as addresses spell it. Raises `Rejection` (`address_invalid`)."""
    return format_address(Address(text, "shared", None, None, None, "k")).split(_SLASH, 1)[0]
