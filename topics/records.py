"""A Kafka record before it is sent and after it was received."""

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import Struct

from topics.catalog import Topic

Headers = Sequence[tuple[str, bytes]]


class Record(Struct, frozen=True, gc=False):
    """To be sent. Without `partition` the key decides by murmur2, as Java and aiokafka do."""

    topic: Topic
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None


class ReceivedRecord(Struct, frozen=True, gc=False):
    """As it came; `topic` is the logical name."""

    topic: Topic
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = 0

    @property
    def time(self) -> datetime:
        """Return when it was written, as Kafka knows it."""
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)
