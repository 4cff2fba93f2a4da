"""How far each worker has applied its input, for those who look: the fences themselves are the workers' own."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from topics.catalog import Topic
from workers.runtime.postgres import Connection
from workers.runtime.queries import load_queries

Place = TypeVar("Place")
#: Asks Kafka for the offset after the newest record of each place. Raises `DependencyDown`.
AskLogEnds: TypeAlias = Callable[[], Awaitable[Mapping[Place, int]]]

_QUERIES = load_queries(__file__, "positions.sql")


async def applied_positions(connection: Connection, group: str) -> Mapping[tuple[Topic, int], int]:
    """Return the offset after the last applied record, by topic and partition."""
    rows = await connection.fetch(_QUERIES["positions"])
    return {
        (Topic(row["topic"]), row["partition"]): row["next_offset"] for row in rows if row["consumer_group"] == group
    }


def deleted_unread(first: Mapping[tuple[Topic, int], int], applied: Mapping[tuple[Topic, int], int]) -> int:
    """Return how many records topics have deleted before they were applied: those before the `first` that are kept."""
    return sum(max(0, offset - applied.get(place, offset)) for place, offset in first.items())


async def made_anew(
    positions: Mapping[Place, int], seen: Mapping[Place, int], log_ends: AskLogEnds[Place]
) -> Sequence[Place]:
    """Return the places whose logs end before these positions: their topic was made anew, nothing of it was applied.

    So it looks, too, to a worker that was held up while another one went on past the ends that it had `seen`: Kafka is
    asked before that counts.
    """
    suspected = [place for place, position in positions.items() if seen.get(place, position) < position]
    if not suspected:
        return ()
    ends = await log_ends()
    return [place for place in suspected if ends.get(place, positions[place]) < positions[place]]
