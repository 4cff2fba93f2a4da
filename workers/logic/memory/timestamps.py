"""How times are written: RFC 3339 in UTC, always with microseconds, so that texts order as times do."""

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=1024)
def timestamp(moment: datetime) -> str:
    """Return `2026-02-28T10:00:00.000000Z`."""
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
