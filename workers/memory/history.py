"""The read side: items as they are and as they were, from PostgreSQL alone. The API and the command line ask here."""

from collections.abc import Iterable, Sequence
from itertools import starmap, takewhile
from typing import Literal, NamedTuple

from schemas.address import Address, Scope, format_address
from workers.logic.memory.items import Item, Version
from workers.runtime.postgres import Connection
from workers.runtime.queries import load_queries

_QUERIES = load_queries(__file__, "history.sql")
#: Greater than any version.
_NEWEST = 2**62
#: `/` and the character after it: the addresses that start with `PREFIX/` lie between.
_SLASH, _AFTER_SLASH = "/", "0"
_ABSENT = "-"


class Place(NamedTuple):
    """Which of a tenant's items are meant; None leaves a part open, and so does a subject (kind, None) the id."""

    scope: Scope | None = None
    workflow: str | None = None
    subject: tuple[str, str | None] | Literal["workflow-global"] | None = None

    def segments(self) -> list[str | None]:
        """Return scope, workflow, kind and id as addresses spell them."""
        workflow = _ABSENT if self.scope == "shared" else _segment(self.workflow)
        if self.subject == "workflow-global":
            return [self.scope, workflow, _ABSENT, _ABSENT]
        kind, subject_id = self.subject or (None, None)
        return [self.scope, workflow, _segment(kind), _segment(subject_id)]


def at_hand(workflow: str, subjects: Iterable[tuple[str, str]]) -> list[Place]:
    """Return what a run's requests name: its subjects' items, private and shared, and its workflow's global ones."""
    private = [Place("workflow", workflow, subject) for subject in dict.fromkeys(subjects)]
    shared = [Place("shared", None, subject) for subject in dict.fromkeys(subjects)]
    return [*private, *shared, Place("workflow", workflow, "workflow-global")]


async def item(connection: Connection, address: str) -> Item | None:
    """Return an item; None when nothing is stored, or what was stored has expired."""
    row = await connection.fetchrow(_QUERIES["read_item"], address)
    return None if row is None else Item(*row)


async def items(
    connection: Connection, tenant: str, places: Sequence[Place], *, after: str = "", limit: int = 50
) -> list[Item]:
    """Return a page of a tenant's live items in places that do not overlap, in the order of addresses.

    `after` is the last address of the page before.
    """
    wanted = [_range(tenant, place) for place in places]
    rows = await connection.fetch(_QUERIES["list_items"], *map(list, zip(*wanted, strict=True)), after, limit)
    return list(starmap(Item, rows))


def _range(tenant: str, place: Place) -> tuple[str | None, ...]:
    """Return the addresses between which a place lies, and all of its segments: one after an open one is compared."""
    segments = place.segments()
    known = takewhile(lambda segment: segment is not None, [_segment(tenant), *segments])
    prefix = _SLASH.join(map(str, known))
    return (f"{prefix}{_SLASH}", f"{prefix}{_AFTER_SLASH}", *segments)


async def versions(connection: Connection, address: str, *, before: int = _NEWEST, limit: int = 50) -> list[Version]:
    """Return a page of what is kept of an item's past, newest first; `before` is the page before's last version."""
    return list(starmap(Version, await connection.fetch(_QUERIES["list_versions"], address, before, limit)))


def _segment(text: str | None) -> str | None:
    """Return a segment as addresses spell it. Raises `Rejection` (`address_invalid`)."""
    return None if text is None else format_address(Address(text, "shared", None, None, None, "k")).split(_SLASH, 1)[0]
