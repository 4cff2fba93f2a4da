"""Received records -> arrivals to decide, and records to set aside: dead letters and forwards."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from schemas.envelope import Event
from schemas.errors import Rejection
from schemas.identity import content_digest, key_of
from schemas.registry import ALL_TYPES, OUTCOME_TYPES, parse
from topics.catalog import Topic
from topics.codec import decode
from topics.dead_letters import dead_letter
from topics.keys import partition_of
from topics.records import ReceivedRecord, Record
from workers.logic.variables.state import ExecutionKey
from workers.logic.variables.step import SOURCE

WORKER = "variables"


class Arrival(NamedTuple):
    """An event whose envelope and data are valid, in the partition where it belongs; or the rest of one (`goes_on`)."""

    record: ReceivedRecord
    event: Event
    key: UUID
    digest: bytes
    execution: ExecutionKey
    goes_on: bool = False

    def rest(self, key: UUID) -> "Arrival":
        """Return what an event that came for this execution left to do, as the revision of `key` does it."""
        # Its content is in the store, and is known by that of the event: its key says who it is.
        return self._replace(key=key, digest=key.bytes, goes_on=True)


@dataclass(slots=True)
class Intake:
    """What a batch of records holds. `letters` go with the code that each was refused for."""

    records: Sequence[ReceivedRecord] = ()
    arrivals: list[Arrival] = field(default_factory=list)
    letters: list[tuple[str, Record]] = field(default_factory=list)
    forwards: list[Record] = field(default_factory=list)
    #: Outcomes of commands that no execution sent: they are for others.
    unasked: int = 0


def take_in(records: Iterable[ReceivedRecord], partitions: int, intake: Intake | None = None) -> Intake:
    """Sort `records` out, after those of `intake`.

    What was refused depends on the record alone, so that every delivery gives the same.
    """
    intake = Intake() if intake is None else intake
    for record in records:
        try:
            _take_one(record, partitions, intake)
        except Rejection as rejection:
            intake.letters.append((rejection.reason, refusal(record, rejection.reason, rejection.message)))
    return intake


def refusal(record: ReceivedRecord, code: str, message: str) -> Record:
    """Return the dead letter of `record`."""
    return dead_letter(record, code, message, WORKER)


def _take_one(record: ReceivedRecord, partitions: int, intake: Intake) -> None:
    event = decode(record.value, record.headers)
    if record.topic is not Topic.MEMORY_RESULTS:
        subject = subject_of(event, record.topic)
    elif event.subject is not None and _is_ours(event):
        subject = event.subject
    else:
        intake.unasked += 1
        return
    # Whoever published it may have known of fewer partitions than there are by now.
    place = partition_of(subject.encode(), partitions)
    if place != record.partition:
        intake.forwards.append(_forwarded(record, event, place))
        return
    parse(event)
    intake.arrivals.append(
        Arrival(record, event, key_of(event), content_digest(event), ExecutionKey(event.tenant, subject))
    )


def _is_ours(event: Event) -> bool:
    """Say whether a record on memory-results is the outcome of a command that this worker sent."""
    return event.type in OUTCOME_TYPES and event.data.get("command_source") == SOURCE


def subject_of(event: Event, topic: Topic) -> str:
    """Return the execution of an event on `topic`. Raises `Rejection`: `unknown_type`, `subject_required`."""
    spec = ALL_TYPES.get(event.type)
    if spec is not None and topic not in spec.topics:
        raise Rejection(
            "unknown_type",
            f"the type {event.type} does not belong on {topic.value}; it goes to {' or '.join(spec.topics)}",
        )
    if event.subject is None:
        raise Rejection(
            "subject_required",
            f"{event.type} on {topic.value} belongs to an execution; set the attribute subject to its id",
        )
    return event.subject


def _forwarded(record: ReceivedRecord, event: Event, partition: int) -> Record:
    """Return the record for the partition of its execution: same bytes, same id, the key that it should have had."""
    assert event.subject is not None, "checked before"
    return Record(record.topic, event.subject.encode(), record.value, record.headers, partition)
