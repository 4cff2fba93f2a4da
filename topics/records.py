"""A Kafka record before it is sent and after it was received."""

from collections.abc import Sequence
from dataclasses import dataclass

from topics.catalog import Topic

Headers = Sequence[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Record:
    """To be sent. Without `partition` the key decides by murmur2, as Java and aiokafka do."""

    topic: Topic
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class ReceivedRecord:
    """As it came; `topic` is the logical name."""

    topic: Topic
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = 0
