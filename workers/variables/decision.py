"""Arrivals and what is stored of them -> what to write and to publish. Pure: nothing here waits or asks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import cast
from uuid import UUID

from schemas.errors import Rejection
from schemas.exact_json import JsonObject, loads
from schemas.limits import Limits
from topics import codec
from topics.catalog import Topic
from topics.codec import STRUCTURED_HEADERS
from topics.records import ReceivedRecord, Record
from workers.logic.variables import fold
from workers.logic.variables.rest import unfinished
from workers.logic.variables.state import ExecutionKey, ExecutionState
from workers.logic.variables.step import Context, ForkSource, RealMemory
from workers.logic.variables.updates import revised_event
from workers.variables.handover import unpublished_from
from workers.variables.intake import Arrival, refusal
from workers.variables.parts import fork_source
from workers.variables.rows import (
    decode_changes,
    decode_outgoing,
    encode_changes,
    encode_outgoing,
    records_of,
)
from workers.variables.store import HeadRow, Inheritance, Known, Refusal, RevisionRow


@dataclass(frozen=True, slots=True)
class Facts:
    """What the database says about a batch. `states` are working copies that this decision may change."""

    now: datetime
    limits: Limits
    known: Mapping[UUID, Known]
    #: By topic, partition and offset: refused at an earlier delivery.
    refused: Mapping[tuple[Topic, int, int], Refusal]
    states: Mapping[ExecutionKey, ExecutionState]
    forks: Mapping[UUID, ForkSource]
    #: For simulated runs: what was read of real memory so far.
    memory: RealMemory = field(default_factory=RealMemory)


@dataclass(slots=True)
class Decision:
    """What a batch brings about."""

    revisions: list[RevisionRow] = field(default_factory=list)
    #: What forks that were started here begin with.
    inherited: list[Inheritance] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    letters: list[tuple[str, Record]] = field(default_factory=list)
    #: Revised executions -> the entries they changed, the last change of each.
    changes: dict[ExecutionKey, dict[str, bytes | None]] = field(default_factory=dict)
    replayed: dict[UUID, Known] = field(default_factory=dict)
    #: What the owner before us may not have published, as far as it did not come again itself.
    handed_over: dict[UUID, Known] = field(default_factory=dict)
    fresh: list[Record] = field(default_factory=list)
    #: Outcomes that nobody waits for any more.
    unrecorded: int = 0
    #: What has to be decided once this is committed: it would have been too much at once.
    left: Sequence[Arrival] = ()
    #: Bytes of the new revisions.
    size: int = 0
    _digests: dict[UUID, bytes] = field(default_factory=dict)

    def outgoing(self) -> list[Record]:
        """Return the records to publish: what earlier deliveries should have sent, in its order, then the new."""
        records: list[Record] = []
        again = {**self.handed_over, **self.replayed}
        for known in sorted(again.values(), key=lambda known: known.revision):
            records += _stored_records(known)
        return records + self.fresh


def decide(arrivals: Sequence[Arrival], facts: Facts) -> Decision:
    """Decide the arrivals in order: apply, answer again, or refuse.

    Stops where it is enough for one batch, and before what must find this committed: the rest of an event.
    Raises `NeedsMemory` when a simulated run needs items of real memory: decide again on fresh states then.
    """
    decision = Decision()
    for place, arrival in enumerate(arrivals):
        earlier = _rest_before(arrival, facts)
        if earlier is not None:
            decision.left = [earlier, *arrivals[place:]]
            break
        rest = _decide_one(arrival, facts, decision)
        if rest is not None or decision.size >= facts.limits.batch_bytes:
            decision.left = [*([] if rest is None else [arrival.rest(rest)]), *arrivals[place + 1 :]]
            break
    return decision


def _rest_before(arrival: Arrival, facts: Facts) -> Arrival | None:
    """Return what the event before has left to do in the arrival's execution: a killed worker's work, as a rule."""
    state = facts.states.get(arrival.execution)
    if arrival.key in facts.known or state is None:
        return None
    rest = unfinished(state)
    return None if rest is None or rest.key == arrival.key else arrival.rest(rest.key)


def head_rows(
    decision: Decision, states: Mapping[ExecutionKey, ExecutionState], taken: Mapping[ExecutionKey, int]
) -> list[HeadRow]:
    """Return the heads of the revised executions; of those `taken` over, more than this batch is unpublished."""
    revised = {key: states[key] for key in decision.changes}
    first = unpublished_from(decision.revisions, revised, taken)
    return [
        HeadRow(key, state.revision, state.status, state.head, state.workflow, state.parent_execution_id, first[key])
        for key, state in revised.items()
    ]


def _decide_one(arrival: Arrival, facts: Facts, decision: Decision) -> UUID | None:
    """Decide one arrival; return the key of the revision with which it goes on, if it is not done."""
    known = facts.known.get(arrival.key)
    before = facts.refused.get(_place(arrival.record)) if facts.refused and not arrival.goes_on else None
    if before is not None:
        _send_letter(before, decision)
    applied = known.digest if known is not None else decision._digests.get(arrival.key)  # noqa: SLF001 - same module
    if applied is None:
        if before is None:
            return _apply(arrival, facts, decision)
    elif applied != arrival.digest:
        _send_letter(Refusal(arrival.record, "id_reused", _reused(arrival)), decision)
    elif known is not None:
        decision.replayed[known.key] = known
        return _stored_rest(known)
    return None


def _place(record: ReceivedRecord) -> tuple[Topic, int, int]:
    return record.topic, record.partition, record.offset


def _reused(arrival: Arrival) -> str:
    event = arrival.event
    return (
        f"the event {event.id!r} of source {event.source!r} came before with other content; "
        "the same tenant, source and id are the same event: give each event its own id"
    )


def _apply(arrival: Arrival, facts: Facts, decision: Decision) -> UUID | None:
    state = facts.states[arrival.execution]
    fork = facts.forks.get(arrival.key)
    context = Context(facts.now, facts.limits, fork, facts.memory, arrival.key)
    try:
        if arrival.goes_on:
            revision: fold.Revision | None = fold.go_on(state, context=context)
        else:
            revision = fold.apply(state, arrival.event, context=context)
    except Rejection as rejection:
        _refuse(arrival, rejection.reason, rejection.message, decision)
        return None
    if revision is None:
        decision.unrecorded += 1
        return None
    if fork is not None:
        decision.inherited.append(_inheritance(arrival, revision.revision))
    if revision.dead_letter is not None:
        _refuse(arrival, *revision.dead_letter, decision)
    records = records_of(revision.outgoing)
    revised = revised_event(arrival.execution, revision.revision, arrival.key, revision.said, revision.changes)
    decision.fresh += [_revised_record(arrival.execution, codec.encode(revised)), *records]
    row = RevisionRow(
        execution=arrival.execution,
        revision=revision.revision,
        event_key=arrival.key,
        digest=arrival.digest,
        body=revision.body,
        changes=encode_changes(revision.changes),
        outgoing=encode_outgoing(records),
    )
    decision.revisions.append(row)
    decision.size += len(row.body) + len(row.changes) + len(row.outgoing)
    decision.changes.setdefault(arrival.execution, {}).update(revision.changes)
    decision._digests[arrival.key] = arrival.digest  # noqa: SLF001 - same module
    return revision.rest


def _inheritance(arrival: Arrival, first_own: int) -> Inheritance:
    found = fork_source(arrival)
    assert found is not None, "only those were looked up"
    source, revisions = found
    return Inheritance(arrival.execution, source.execution_id, revisions, first_own - 1 - revisions)


def _refuse(arrival: Arrival, code: str, message: str, decision: Decision) -> None:
    # PostgreSQL's text cannot hold NUL, which a message may quote; both copies must read the same.
    refused = Refusal(arrival.record, code, message.replace("\x00", "\\u0000"))
    decision.refusals.append(refused)
    _send_letter(refused, decision)


def _send_letter(refused: Refusal, decision: Decision) -> None:
    decision.letters.append((refused.code, refusal(refused.record, refused.code, refused.message)))


def _stored_rest(known: Known) -> UUID | None:
    rest = cast("JsonObject", loads(known.body)).get("rest")
    return None if rest is None else UUID(str(rest))


def _stored_records(known: Known) -> list[Record]:
    """Return what a stored revision sends, the same bytes at every delivery."""
    body = cast("JsonObject", loads(known.body))
    revised = revised_event(known.execution, known.revision, known.key, body, dict(decode_changes(known.changes)))
    return [_revised_record(known.execution, codec.encode(revised)), *decode_outgoing(known.outgoing)]


def _revised_record(execution: ExecutionKey, value: bytes) -> Record:
    return Record(Topic.VARIABLE_UPDATES, execution.execution_id.encode(), value, STRUCTURED_HEADERS)
