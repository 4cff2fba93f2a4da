"""Named points at which the process ends itself as `kill -9` would: crash tests name one and its pass.

| point | where a worker passes it |
|---|---|
| `before_commit`, `after_commit`, `after_publish` | in each batch |
| `after_changelog` | in each batch of the variable worker |
| `before_publishing_expiry` | when expired items are gone and nobody knows it yet |
| `in_recovery` | the variable worker: after each fetch of its table; the memory worker: with answers of a killed one |
| `in_rebalance` | when partitions are about to leave, and when they have come: both also when it joins |
"""

import os

from schemas.errors import SettingsInvalid

_KILLED = 137
_remaining: dict[str, int] = {}


def configure(crash_at: str | None) -> None:
    """Arm one point: `after_commit:3` is its third pass, `after_commit` its first; None disarms all.

    Raises `SettingsInvalid`.
    """
    _remaining.clear()
    if crash_at is None:
        return
    name, _, count = crash_at.partition(":")
    if not name or not (count or "1").isdecimal() or int(count or 1) < 1:
        raise SettingsInvalid(
            f"TALLY_CRASH_AT is {crash_at!r}; write a point's name, or name:pass as in after_commit:3"
        )
    _remaining[name] = int(count or 1)


def pass_point(name: str) -> None:
    """End the process here, without any clean-up, if this is the armed pass of `name`."""
    if name in _remaining:
        _remaining[name] -= 1
        if _remaining[name] == 0:
            os._exit(_KILLED)
