"""Who an event is: its key, its content, and the ids of what it causes.

The same `tenant`, `source` and `id` are the same event, whatever else differs; a derived
id depends only on what caused it, so that every delivery of the cause gives the same id.
"""

from hashlib import blake2b
from struct import Struct
from uuid import UUID

from asyncpg.pgproto import pgproto

from schemas.envelope import Event
from schemas.exact_json import canonical

_LENGTHS = Struct(">III")
#: The driver's `uuid.UUID` in C, equal to any other: made, hashed, written and sent in a tenth of the time.
_uuid = pgproto.UUID


def event_key(tenant: str, source: str, event_id: str) -> UUID:
    """Return the 128-bit key of an event. Length prefixes keep `a`+`bc` apart from `ab`+`c`."""
    first, second, third = tenant.encode(), source.encode(), event_id.encode()
    lengths = _LENGTHS.pack(len(first), len(second), len(third))
    return _uuid(blake2b(b"".join((lengths, first, second, third)), digest_size=16).digest())


def key_of(event: Event) -> UUID:
    """Return the key of `event`."""
    return event_key(event.tenant, event.source, event.id)


def content_digest(event: Event) -> bytes:
    """Return 16 bytes that differ when two events of one key differ in what they ask for.

    `time` and `traceparent` are left out: a client that retries may renew them.
    """
    content = canonical([event.type, event.subject, event.replykey, event.data])
    return blake2b(content, digest_size=16).digest()


def derived_id(cause: UUID, role: str) -> str:
    """Return the id of the event that plays `role` among those that the event `cause` brought about."""
    return str(_uuid(blake2b(cause.bytes + role.encode(), digest_size=16).digest()))
