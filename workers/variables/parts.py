"""How a batch is cut, and where it stands in its topics. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from topics.records import ReceivedRecord
from workers.logic.variables.state import ExecutionKey
from workers.variables.intake import Arrival
from workers.variables.store import Lane, Size


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
    if not isinstance(fork, dict) or arrival.goes_on:
        return None
    # A number that no revision can have is looked up as one, in vain.
    return ExecutionKey(arrival.execution.tenant, str(fork["execution_id"])), min(int(str(fork["revision"])), 2**62)


def before_fork(arrivals: Sequence[Arrival]) -> int:
    """Return how many arrivals come before one that forks from what they change: its source must be committed."""
    changed: set[ExecutionKey] = set()
    for index, arrival in enumerate(arrivals):
        source = fork_source(arrival)
        if source is not None and source[0] in changed:
            return index
        changed.add(arrival.execution)
    return len(arrivals)


def fitting(
    arrivals: Sequence[Arrival], known: Mapping[UUID, Size], unpublished: Mapping[ExecutionKey, int], most_bytes: int
) -> int:
    """Return for how many arrivals what is stored of them can be read at once; at least one.

    `unpublished` are the bytes that go out again when an execution is met.
    """
    left, met = most_bytes, set[ExecutionKey]()
    for index, arrival in enumerate(arrivals):
        if index and left <= 0:
            return index
        if arrival.key in known:
            left -= known[arrival.key].bytes
        if arrival.execution not in met:
            met.add(arrival.execution)
            left -= unpublished.get(arrival.execution, 0)
    return len(arrivals)


def records_before(records: Sequence[ReceivedRecord], left: Sequence[Arrival]) -> Sequence[ReceivedRecord]:
    """Return the records that are done when all arrivals but those `left` are decided."""
    if not left:
        return records
    first = left[0].record
    return records[: next(index for index, record in enumerate(records) if record is first)]
