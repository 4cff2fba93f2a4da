"""The arithmetic of measurements. Pure: numbers in, numbers out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal


@dataclass(frozen=True, slots=True)
class Series:
    """One quantity, measured once a round."""

    name: str
    unit: str
    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Return the middle round, which one disturbed round cannot move far."""
        return median(self.rounds)

    @property
    def spread(self) -> float:
        """Return the distance of the slowest from the fastest round, as a share of the median."""
        return (max(self.rounds) - min(self.rounds)) / self.median if self.median else 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """Ours beside its limits. The figure that the aim speaks of is `ratio`.

    `better` says which way is good: a rate is to be high, a time or a size low. Without `limits` there is no ratio.
    """

    name: str
    work: str
    ours: Series
    limits: tuple[Series, ...] = ()
    better: Literal["high", "low"] = "high"
    #: What the ratio should reach (`high`) or stay under (`low`).
    aim: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def tightest(self) -> Series | None:
        """Return the limit that is hardest to keep: the slowest of the raw parts."""
        if not self.limits:
            return None
        pick = min if self.better == "high" else max
        return pick(self.limits, key=lambda limit: limit.median)

    @property
    def ratio(self) -> Series | None:
        """Return ours over the tightest limit, round by round: both ran within seconds of each other."""
        tightest = self.tightest
        if tightest is None:
            return None
        pairs = zip(self.ours.rounds, tightest.rounds, strict=True)
        return Series("ratio", "", tuple(ours / limit for ours, limit in pairs))

    @property
    def reached(self) -> bool | None:
        """Say whether the aim was reached; None without one."""
        if self.aim is None or self.ratio is None:
            return None
        return self.ratio.median >= self.aim if self.better == "high" else self.ratio.median <= self.aim


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of `values` that at least `share` of them (0 to 1) do not exceed."""
    if not values:
        raise ValueError("no values, no percentile")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def shown(value: float) -> str:
    """Return a figure with three digits that matter."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"
