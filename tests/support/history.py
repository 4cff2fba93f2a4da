"""The recorded history of a run: every record of every topic, what is stored, what clients were told.

Kafka's logs are the recorder: a record's timestamp is taken when its producer appends it, so that of a command is
never after the command was applied, and that of an outcome never before. All clocks are this machine's.
"""

import gzip
import pickle
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from schemas.envelope import Event
from schemas.errors import Rejection
from schemas.limits import DEFAULT_LIMITS, Limits
from topics.catalog import Topic
from topics.codec import decode
from topics.records import ReceivedRecord

#: Where a record lies.
Place = tuple[Topic, int, int]


class ItemRow(NamedTuple):
    """A row of `memory_items`."""

    address: str
    version: int
    sequence: int
    erased_version: int
    value: bytes | None
    expires_at: datetime | None


class VersionRow(NamedTuple):
    """A row of `memory_versions` that people may still see."""

    address: str
    version: int
    value: bytes | None
    command_key: UUID


class OutcomeRow(NamedTuple):
    """A row of `memory_outcomes`."""

    command_key: UUID
    outcome: bytes
    conflict: bytes | None


class HeadRow(NamedTuple):
    """A row of `executions`."""

    tenant: str
    execution_id: str
    revision: int
    status: str
    head: bytes


class RevisionRow(NamedTuple):
    """A row of `revisions`."""

    tenant: str
    execution_id: str
    revision: int
    event_key: UUID | None
    body: bytes
    changes: bytes
    outgoing: bytes


@dataclass(slots=True)
class History:
    """One run, read at rest: nothing is on its way any more."""

    #: Every record, each partition's in the order of its offsets.
    logs: dict[Topic, list[ReceivedRecord]] = field(default_factory=dict)
    #: Events (topic, value) that a client sent and Kafka acknowledged.
    acknowledged: set[tuple[Topic, bytes]] = field(default_factory=set)
    #: Values that were sent although they must not be accepted, with the code that each must get.
    bad: dict[tuple[Topic, bytes], str] = field(default_factory=dict)
    items: list[ItemRow] = field(default_factory=list)
    versions: list[VersionRow] = field(default_factory=list)
    outcomes: list[OutcomeRow] = field(default_factory=list)
    heads: list[HeadRow] = field(default_factory=list)
    revisions: list[RevisionRow] = field(default_factory=list)
    #: What each worker stored as applied, and what its group committed, by (worker, topic, partition).
    applied: dict[tuple[str, Topic, int], int] = field(default_factory=dict)
    committed: dict[tuple[str, Topic, int], int] = field(default_factory=dict)
    log_ends: dict[tuple[Topic, int], int] = field(default_factory=dict)
    #: When the rows were read, in seconds: what had expired by then may be gone.
    looked_at: float = 0.0
    #: What the workers kept to.
    limits: Limits = DEFAULT_LIMITS

    def log(self, topic: Topic) -> list[ReceivedRecord]:
        """Return the records of a topic."""
        return self.logs.get(topic, [])

    def save(self, path: Path) -> None:
        """Keep the history, to be looked at after a violation."""
        path.write_bytes(gzip.compress(pickle.dumps(self), 3))

    @staticmethod
    def load(path: Path) -> "History":
        """Read what `save` kept."""
        history = pickle.loads(gzip.decompress(path.read_bytes()))
        assert isinstance(history, History)
        return history


@lru_cache(maxsize=1_000_000)
def _decoded(value: bytes | None, headers: tuple[tuple[str, bytes], ...]) -> Event | None:
    try:
        return decode(value, headers)
    except Rejection:
        return None


def event_of(record: ReceivedRecord) -> Event | None:
    """Return the event in a record; None where there is none."""
    return _decoded(record.value, tuple(record.headers))


def place_of(record: ReceivedRecord) -> Place:
    """Return where a record lies."""
    return record.topic, record.partition, record.offset


def at_latest(record: ReceivedRecord) -> float:
    """Return seconds: the record was made before then. Timestamps are cut to milliseconds."""
    return (record.timestamp_ms + 1) / 1000


def at_earliest(record: ReceivedRecord) -> float:
    """Return seconds: the record was not made before then."""
    return record.timestamp_ms / 1000
