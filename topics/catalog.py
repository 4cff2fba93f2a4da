"""The topics as data: name, key, direction, partitions, retention, clean-up, who writes and who reads.

`tally topics create` makes what stands here, `tally topics check` compares a broker with it, and the
AsyncAPI document is written from it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from schemas.limits import DEFAULT_LIMITS

DAY_MS = 24 * 3600 * 1000
#: Room for the batch's own framing around a record of the largest size.
MAX_MESSAGE_BYTES = DEFAULT_LIMITS.record_bytes + 64 * 1024


class Topic(StrEnum):
    """Logical names; on the broker they carry the prefix (`tally.` by default)."""

    EXECUTION_EVENTS = "execution-events"
    ACTIVITY_OUTPUTS = "activity-outputs"
    MEMORY_COMMANDS = "memory-commands"
    VARIABLE_UPDATES = "variable-updates"
    NODE_RESULTS = "node-results"
    MEMORY_RESULTS = "memory-results"
    MEMORY_CONFLICTS = "memory-conflicts"
    MEMORY_CHANGES = "memory-changes"
    DEAD_LETTERS = "dead-letters"
    EXECUTIONS_TABLE = "variables-executions-changelog"

    # Enum's own is written in Python, and topics are looked up for each record.
    __hash__ = str.__hash__


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """One topic. `copartitioned` topics must have equal partition counts, whatever that count is."""

    topic: Topic
    key: str
    direction: Literal["in", "out", "internal"]
    carries: str
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    clean_up: Literal["delete", "compact"] = "delete"
    retention_ms: int | None = 7 * DAY_MS
    copartitioned: bool = False


CATALOG: tuple[TopicSpec, ...] = (
    TopicSpec(
        topic=Topic.EXECUTION_EVENTS,
        key="execution id",
        direction="in",
        carries="lifecycle, and requests that need the store",
        producers=("engines", "variable worker"),
        consumers=("variable worker",),
        copartitioned=True,
    ),
    TopicSpec(
        topic=Topic.ACTIVITY_OUTPUTS,
        key="execution id",
        direction="in",
        carries="what activities and agents produced",
        producers=("engines",),
        consumers=("variable worker",),
        copartitioned=True,
    ),
    TopicSpec(
        topic=Topic.MEMORY_COMMANDS,
        key="item address, or none",
        direction="in",
        carries="durable memory and conversation commands",
        producers=("clients", "variable worker"),
        consumers=("memory worker",),
    ),
    TopicSpec(
        topic=Topic.VARIABLE_UPDATES,
        key="execution id",
        direction="out",
        carries="variables.revised for each revision, execution.finalized",
        producers=("variable worker",),
        consumers=("subscribers",),
    ),
    TopicSpec(
        topic=Topic.NODE_RESULTS,
        key="execution id",
        direction="out",
        carries="the one answer of each request",
        producers=("variable worker",),
        consumers=("engines",),
    ),
    TopicSpec(
        topic=Topic.MEMORY_RESULTS,
        key="execution id, else replykey, else item address",
        direction="out",
        carries="the one outcome of each memory command",
        producers=("memory worker",),
        consumers=("clients", "variable worker"),
        copartitioned=True,
    ),
    TopicSpec(
        topic=Topic.MEMORY_CONFLICTS,
        key="item address",
        direction="out",
        carries="memory.conflict_detected: every race",
        producers=("memory worker",),
        consumers=("subscribers",),
        retention_ms=30 * DAY_MS,
    ),
    TopicSpec(
        topic=Topic.MEMORY_CHANGES,
        key="item address",
        direction="out",
        carries="memory.changed: the newest state of every item; a tombstone when it is gone",
        producers=("memory worker",),
        consumers=("subscribers",),
        clean_up="compact",
        retention_ms=None,
    ),
    TopicSpec(
        topic=Topic.DEAD_LETTERS,
        key="as received",
        direction="out",
        carries="what could not be accepted: original bytes and headers, and why",
        producers=("variable worker", "memory worker"),
        consumers=("operators",),
        retention_ms=30 * DAY_MS,
    ),
    TopicSpec(
        topic=Topic.EXECUTIONS_TABLE,
        key="execution id and entry",
        direction="internal",
        carries="the working copy of the variable stores (a cache: PostgreSQL holds the truth)",
        producers=("variable worker",),
        consumers=("variable worker",),
        clean_up="compact",
        retention_ms=None,
        copartitioned=True,
    ),
)


def spec_of(topic: Topic) -> TopicSpec:
    """Return the catalog entry of `topic`."""
    return next(spec for spec in CATALOG if spec.topic is topic)
