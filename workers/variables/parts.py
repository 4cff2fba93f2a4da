"""How a batch is cut, and where it stands in its topics. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from topics.records import ReceivedRecord
from workers.logic.variables.state import ExecutionKey
from workers.variables.intake import Arrival
from workers.variables.store import Lane


def slices(records: Sequence[ReceivedRecord], size: int) -> Iterator[Sequence[ReceivedRecord]]:
    """Cut records, in order, into batches of at most `size`; no records are one empty batch."""
    for start in range(0, max(1, len(records)), size):
        yield records[start : start + size]


def positions_after(
    records: Sequence[ReceivedRecord], stored: Mapping[Lane, int]
) -> tuple[dict[Lane, int], list[ReceivedRecord]]:
    """Return the positions after `records`, never back, and those records that lie before the stored ones."""
    positions: dict[Lane, int] = {}
    behind: list[ReceivedRecord] = []
    for record in records:
        lane = (record.topic, record.partition)
        if record.offset < stored[lane]:
            behind.append(record)
        positions[lane] = max(positions.get(lane, stored[lane]), record.offset + 1)
    return positions, behind


def fork_source(arrival: Arrival) -> tuple[ExecutionKey, int] | None:
    """Return the execution and revision that an `execution.started` forks from."""
    fork = arrival.event.data.get("forked_from") if arrival.event.type == "execution.started" else None
    if not isinstance(fork, dict):
        return None
    # A number that no revision can have is looked up as one, in vain.
    return ExecutionKey(arrival.execution.tenant, str(fork["execution_id"])), min(int(str(fork["revision"])), 2**62)


def cut_before_forks(arrivals: Sequence[Arrival]) -> list[Sequence[Arrival]]:
    """Cut a batch where an execution forks from one that the same batch changes: its source must be committed."""
    parts: list[Sequence[Arrival]] = []
    start = 0
    changed: set[ExecutionKey] = set()
    for index, arrival in enumerate(arrivals):
        source = fork_source(arrival)
        if source is not None and source[0] in changed:
            parts.append(arrivals[start:index])
            start, changed = index, set()
        changed.add(arrival.execution)
    return [*parts, arrivals[start:]]
