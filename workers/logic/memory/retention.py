"""How long a value is kept: every item expires."""

from datetime import datetime, timedelta
from enum import Enum
from functools import lru_cache
from typing import Final

from schemas.errors import Rejection
from schemas.limits import Limits

_SECONDS: Final = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400}


class Keep(Enum):
    """`ttl: "keep"`: the expiry of the version before stays."""

    KEEP = "keep"


#: Seconds, `Keep.KEEP`, or None for the default.
Retention = int | Keep | None


def retention_of(ttl: object, ttl_unit: str | None, limits: Limits) -> Retention:
    """Read `ttl` and `ttl_unit`: both, neither, or `keep` alone. Raises `Rejection` (`ttl_invalid`)."""
    if ttl is None and ttl_unit is None:
        return None
    if ttl == "keep":
        if ttl_unit is not None:
            raise Rejection("ttl_invalid", f'ttl "keep" takes no ttl_unit, {ttl_unit!r} came with it; leave it out')
        return Keep.KEEP
    if ttl is None or ttl_unit is None:
        lacking, given = ("ttl_unit", f"ttl {ttl!r}") if ttl_unit is None else ("ttl", f"ttl_unit {ttl_unit!r}")
        raise Rejection(
            "ttl_invalid", f"{given} came without {lacking}; give both, or neither for the default of 30 days"
        )
    unit = _SECONDS.get(ttl_unit)
    if unit is None or not isinstance(ttl, int) or isinstance(ttl, bool):
        raise Rejection("ttl_invalid", f"ttl {ttl!r} {ttl_unit!r} is not a whole number of {', '.join(_SECONDS)}")
    if not 1 <= ttl * unit <= limits.max_ttl_seconds:
        raise Rejection("ttl_invalid", f"ttl {ttl} {ttl_unit} is not within one second and 100 years")
    return ttl * unit


def expiry(retention: Retention, *, now: datetime, kept: datetime | None, default_seconds: int) -> datetime:
    """Return when a value written at `now` expires. `kept` is the expiry of the live version before, if any."""
    if retention is Keep.KEEP:
        if kept is not None:
            return kept
        retention = None
    return _later(now, default_seconds if retention is None else retention)


@lru_cache(maxsize=1024)
def _later(now: datetime, seconds: int) -> datetime:
    """Return the same object for all values of a batch that expire together: its text too is then found sooner."""
    return now + timedelta(seconds=seconds)
