"""How much to measure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """Sizes of a run. `events` are those of one round."""

    events: int = 60_000
    rounds: int = 5
    #: Activities of the long execution.
    long_execution: int = 5_000
    #: Seconds of each latency measurement.
    latency_s: float = 10.0
    #: Open executions of the restart and memory rows.
    open_executions: int = 100_000
    restarts: int = 3

    @classmethod
    def quick(cls) -> "Options":
        """Return sizes that say something in about two minutes."""
        return cls(events=5_000, rounds=3, long_execution=2_000, latency_s=4.0, open_executions=5_000, restarts=2)
