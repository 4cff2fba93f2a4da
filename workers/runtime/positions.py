"""How far each worker has applied its input, for those who look: the fences themselves are the workers' own."""

from collections.abc import Mapping

from topics.catalog import Topic
from workers.runtime.postgres import Connection
from workers.runtime.queries import load_queries

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
