"""Variable stores: every event applied once, in order; each revision what the fold makes of it; the table no liar."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf
from typing import NamedTuple
from uuid import UUID

from schemas.envelope import Event
from schemas.errors import Rejection
from schemas.exact_json import loads
from schemas.identity import key_of
from schemas.limits import DEFAULT_LIMITS, Limits
from tests.support.checker.commands import Answered
from tests.support.checker.simulations import RealStates, Seen
from tests.support.checker.verdict import Kind, Verdict
from tests.support.history import History, RevisionRow, at_earliest, at_latest, event_of
from topics import codec
from topics.catalog import Topic
from topics.keys import partition_of
from workers.logic.memory.items import Item, live_version
from workers.logic.variables import fold
from workers.logic.variables.simulation import NeedsMemory
from workers.logic.variables.state import ExecutionKey, ExecutionState
from workers.logic.variables.step import Context, ForkSource, RealMemory
from workers.logic.variables.updates import revised_event
from workers.variables.rows import apply_changes, decode_changes, encode_changes, encode_outgoing, records_of

_INPUTS = (Topic.EXECUTION_EVENTS, Topic.ACTIVITY_OUTPUTS, Topic.MEMORY_RESULTS)


@dataclass(slots=True)
class Modelled:
    """An execution as the model has it, after each of its revisions."""

    key: ExecutionKey
    head: bytes | None = None
    entries: dict[str, bytes] = field(default_factory=dict)
    #: Entries after each revision, kept only where another execution forks from it.
    kept: dict[int, dict[str, bytes]] = field(default_factory=dict)
    #: The numbers of its own revisions, in order: a fork's go on after those that it inherited.
    revisions: list[int] = field(default_factory=list)
    #: What its revisions must have published: (topic, key, value).
    published: list[tuple[Topic, bytes, bytes]] = field(default_factory=list)
    simulated: bool = False
    #: What it read of real memory.
    seen: list[Seen] = field(default_factory=list)
    limits: Limits = DEFAULT_LIMITS
    #: The event that was applied last, and the key of the revision with which it must go on.
    cause: "Cause | None" = None
    rest: UUID | None = None

    def apply(
        self, event: Event, now: datetime, fork: ForkSource | None, memory: Mapping[str, Item]
    ) -> fold.Revision | None:
        """Apply an event, or its rest, to a freshly loaded state.

        Raises `NeedsMemory` where `memory` lacks what it asks for.
        """
        state = ExecutionState.load(self.key, self.head, dict(self.entries))
        context = Context(now, self.limits, fork, RealMemory(items=memory))
        if self.rest is None:
            revision = fold.apply(state, event, context=context)
        else:
            revision = fold.go_on(state, context=context)
        if revision is not None:
            self.rest = revision.rest
            for entry, data in revision.changes.items():
                if data is None:
                    self.entries.pop(entry, None)
                else:
                    self.entries[entry] = data
            self.head = state.head
        return revision


@dataclass(frozen=True, slots=True)
class Cause:
    """An input event, and where its first copy lies in the partition of its execution.

    `ordered` is False when there are copies in two topics, between which there is no order: either may be applied.
    """

    event: Event
    topic: Topic
    offset: int
    #: Seconds: it was not there before.
    since: float
    ordered: bool = True


class Published(NamedTuple):
    """What the logs tell beside the inputs: when each revision was published first, by event id, and real memory."""

    revised: Mapping[str, float]
    real: RealStates


def check_executions(
    history: History, answered: Iterable[Answered] = ()
) -> tuple[Verdict, Mapping[ExecutionKey, Modelled]]:
    """Replay the committed causes through the fold and compare; return the model."""
    verdict = Verdict()
    causes = _causes(history)
    rows: defaultdict[ExecutionKey, list[RevisionRow]] = defaultdict(list)
    for row in history.revisions:
        rows[ExecutionKey(row.tenant, row.execution_id)].append(row)
    forks = _forked_from(causes)
    models: dict[ExecutionKey, Modelled] = {}
    published = Published(_first_published(history), RealStates(history, answered))
    for key in _sources_first(rows, forks):
        mine = sorted(rows[key], key=lambda row: row.revision)
        own = _own(key, mine, rows, causes, verdict)
        models[key] = Modelled(key, limits=history.limits)
        _replay(models[key], own, causes, _fork_of(key, models, forks), _kept(key, forks), published, verdict)
        for revision in _kept(key, forks):
            _keep_inherited(models[key], mine, revision)
    _check_heads(history, models, verdict)
    _check_lost(history, causes, models, verdict)
    verdict.counts["executions"] += len(models)
    return verdict, models


def _causes(history: History) -> dict[UUID, Cause]:
    """Find every input event, in the partition where it belongs."""
    counts = {topic: max((p for t, p in history.log_ends if t is topic), default=0) + 1 for topic in _INPUTS}
    causes: dict[UUID, Cause] = {}
    for topic in _INPUTS:
        for record in history.log(topic):
            event = event_of(record)
            if event is None or event.subject is None or (topic, record.value) in history.bad:
                continue
            if partition_of(event.subject.encode(), counts[topic]) == record.partition:
                key = key_of(event)
                known = causes.setdefault(key, Cause(event, topic, record.offset, at_earliest(record)))
                if known.topic is not topic:
                    causes[key] = replace(known, ordered=False, since=min(known.since, at_earliest(record)))
    return causes


def _first_published(history: History) -> dict[str, float]:
    moments: dict[str, float] = {}
    for record in history.log(Topic.VARIABLE_UPDATES):
        event = event_of(record)
        if event is not None:
            moments.setdefault(event.id, at_latest(record))
    return moments


def _forked_from(causes: Mapping[UUID, Cause]) -> dict[ExecutionKey, tuple[ExecutionKey, int]]:
    found = {}
    for cause in causes.values():
        fork = cause.event.data.get("forked_from") if cause.event.type == "execution.started" else None
        if isinstance(fork, dict):
            tenant = cause.event.tenant
            source = ExecutionKey(tenant, str(fork["execution_id"])), int(str(fork["revision"]))
            found[ExecutionKey(tenant, str(cause.event.subject))] = source
    return found


def _sources_first(
    executions: Iterable[ExecutionKey], forks: Mapping[ExecutionKey, tuple[ExecutionKey, int]]
) -> list[ExecutionKey]:
    """Order executions so that each comes after the one it was forked from."""

    def depth(key: ExecutionKey) -> int:
        found = 0
        while key in forks and found <= len(forks):
            key, found = forks[key][0], found + 1
        return found

    return sorted(executions, key=depth)


def _own(
    key: ExecutionKey,
    mine: Sequence[RevisionRow],
    rows: Mapping[ExecutionKey, Sequence[RevisionRow]],
    causes: Mapping[UUID, Cause],
    verdict: Verdict,
) -> list[RevisionRow]:
    """Check that an execution inherited the first revisions of its source, whole and in order; return its own rows."""
    own = [row for row in mine if row.event_key is not None]
    due: list[tuple[bytes, ...]] = []
    for row in own:
        source, revisions = _fork_by(row, causes)
        of_source = sorted(rows.get(ExecutionKey(key.tenant, source), ()), key=lambda row: row.revision)
        due += [(row.body, row.changes, row.outgoing) for row in of_source[:revisions]]
    if due != [(row.body, row.changes, row.outgoing) for row in mine if row.event_key is None]:
        name = f"execution {key.tenant}/{key.execution_id}"
        verdict.add("revision_wrong", name, "what it inherited is not what its source has")
    return own


def _keep_inherited(model: Modelled, mine: Sequence[RevisionRow], revision: int) -> None:
    """Keep the entries at a revision that the execution itself inherited: a fork of a fork may begin there."""
    if revision in model.kept or not any(row.revision == revision and row.event_key is None for row in mine):
        return
    entries: dict[str, bytes] = {}
    for row in mine[:revision]:
        apply_changes(entries, decode_changes(row.changes))
    model.kept[revision] = entries


def _fork_by(row: RevisionRow, causes: Mapping[UUID, Cause]) -> tuple[str, int]:
    """Return the source of the fork that a row starts, and how many revisions it inherits; none as a rule."""
    cause = causes.get(row.event_key) if row.event_key is not None else None
    fork = cause.event.data.get("forked_from") if cause and cause.event.type == "execution.started" else None
    return (str(fork["execution_id"]), int(str(fork["revision"]))) if isinstance(fork, dict) else ("", 0)


def _kept(key: ExecutionKey, forks: Mapping[ExecutionKey, tuple[ExecutionKey, int]]) -> set[int]:
    return {revision for source, revision in forks.values() if source == key}


def _replay(
    model: Modelled,
    rows: Sequence[RevisionRow],
    causes: Mapping[UUID, Cause],
    fork: ForkSource | None,
    keep: set[int],
    published: Published,
    verdict: Verdict,
) -> None:
    name = f"execution {model.key.tenant}/{model.key.execution_id}"
    offsets: dict[Topic, int] = {}
    seen: set[UUID | None] = set()
    for row in rows:
        expected = (model.revisions[-1] if model.revisions else 0) + 1 + _fork_by(row, causes)[1]
        if row.revision != expected:
            kind: Kind = "revision_duplicated" if row.revision < expected else "revision_gap"
            verdict.add(kind, name, f"revision {row.revision} is stored where {expected} belongs")
            return
        model.revisions.append(row.revision)
        goes_on = model.rest is not None and row.event_key == model.rest
        cause = model.cause if goes_on else causes.get(row.event_key) if row.event_key is not None else None
        if cause is None:
            verdict.add("revision_wrong", name, f"nothing in the logs caused revision {row.revision}")
            return
        if row.event_key in seen:
            verdict.add("revision_duplicated", name, f"revision {row.revision} applies {cause.event.id} once more")
            return
        if model.rest is not None and not goes_on:
            verdict.add("revision_order", name, f"revision {row.revision} comes before the rest of the event before")
            return
        seen.add(row.event_key)
        model.cause = cause
        if cause.ordered and not goes_on:
            if cause.offset <= offsets.get(cause.topic, -1):
                verdict.add(
                    "revision_order", name, f"revision {row.revision} applies {cause.event.id} after what came later"
                )
            offsets[cause.topic] = cause.offset
        if cause.event.type == "execution.started" and cause.event.data.get("simulation"):
            model.simulated = True
        if not _matches(model, row, cause, fork, published, verdict):
            return
        if row.revision in keep:
            model.kept[row.revision] = dict(model.entries)
        verdict.counts["revisions"] += 1
    if model.rest is not None:
        verdict.add("event_lost", name, "the rest of its last event is not done")


def _fork_of(
    key: ExecutionKey,
    models: Mapping[ExecutionKey, Modelled],
    forks: Mapping[ExecutionKey, tuple[ExecutionKey, int]],
) -> ForkSource | None:
    if key not in forks:
        return None
    source, revision = forks[key]
    kept = models[source].kept.get(revision) if source in models else None
    return ForkSource(kept or {}, kept is not None)


def _matches(
    model: Modelled, row: RevisionRow, cause: Cause, fork: ForkSource | None, published: Published, verdict: Verdict
) -> bool:
    """Apply a cause to the model and compare what comes of it with the row, byte for byte."""
    name = f"execution {model.key.tenant}/{model.key.execution_id}"
    event = cause.event
    body = loads(row.body)
    assert isinstance(body, dict), "written by the fold"
    now = datetime.fromisoformat(str(body["at"]))
    real: dict[str, Item] = {}
    try:
        revision = _applied(model, row, event, now, fork, real, published.real, verdict)
    except Rejection as rejection:
        verdict.add("revision_wrong", name, f"revision {row.revision}: the model refuses {event.id}: {rejection}")
        return False
    if revision is None:
        verdict.add("revision_wrong", name, f"revision {row.revision}: the model records nothing of {event.id}")
        return False
    records = records_of(revision.outgoing)
    made = {
        "body": (row.body, revision.body),
        "changes": (row.changes, encode_changes(revision.changes)),
        "outgoing": (row.outgoing, encode_outgoing(records)),
    }
    for what, (stored, due) in made.items():
        if stored != due:
            verdict.add(
                "revision_wrong",
                name,
                f"revision {row.revision}: {what} is {_around(stored, due)}, the model has {_around(due, stored)}",
            )
            return False
    assert row.event_key is not None, "its own"
    revised = revised_event(model.key, row.revision, row.event_key, body, revision.changes)
    returned = published.revised.get(revised.id, inf)
    model.seen += [
        Seen(f"simulated {event.id}", address, live_version(item, now), cause.since, returned)
        for address, item in real.items()
    ]
    model.published.append((Topic.VARIABLE_UPDATES, model.key.execution_id.encode(), codec.encode(revised)))
    model.published += [(record.topic, record.key or b"", record.value or b"") for record in records]
    return True


def _applied(
    model: Modelled,
    row: RevisionRow,
    event: Event,
    now: datetime,
    fork: ForkSource | None,
    real: dict[str, Item],
    states: RealStates,
    verdict: Verdict,
) -> fold.Revision | None:
    """Apply a cause; into `real` goes what a simulated run reads of real memory, as the row tells."""
    changes = dict(decode_changes(row.changes))
    while True:
        try:
            return model.apply(event, now, fork, real)
        except NeedsMemory as needs:
            # No prefixes: no row tells what a simulated run lists, so in the load none does.
            for address in needs.addresses:
                name = f"execution {model.key.tenant}/{model.key.execution_id}, revision {row.revision}"
                item = states.pinned(name, address, changes, verdict)
                if item is None:
                    return None
                real[address] = item


def _around(text: bytes, other: bytes) -> str:
    """Cut a text to where it begins to differ."""
    place = next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))
    return text[max(0, place - 60) : place + 60].decode(errors="replace")


def _check_heads(history: History, models: Mapping[ExecutionKey, Modelled], verdict: Verdict) -> None:
    heads = {ExecutionKey(row.tenant, row.execution_id): row for row in history.heads}
    for key, model in models.items():
        row = heads.get(key)
        name = f"execution {key.tenant}/{key.execution_id}"
        if row is None or row.head != model.head:
            shown = "none" if row is None else row.head.decode()
            verdict.add("revision_wrong", name, f"the head is {shown}, the model has {(model.head or b'').decode()}")
    for key in heads.keys() - models.keys():
        verdict.add("revision_gap", f"execution {key.tenant}/{key.execution_id}", "there is a head and no revision")


def _check_lost(
    history: History,
    causes: Mapping[UUID, Cause],
    models: Mapping[ExecutionKey, Modelled],
    verdict: Verdict,
) -> None:
    """Every input event must have its revision, unless the model has nothing to record of it."""
    applied = {row.event_key for row in history.revisions}
    for key, cause in causes.items():
        if key in applied:
            continue
        event = cause.event
        execution = ExecutionKey(event.tenant, str(event.subject))
        if cause.topic is Topic.MEMORY_RESULTS:
            model = models.get(execution)
            if event.data.get("command_source") != "/tallystick/variables" or model is None:
                continue
            state = ExecutionState.load(execution, model.head, dict(model.entries))
            if state.requests.get(str(event.data.get("command_id"))) is None:
                continue
        verdict.add(
            "event_lost",
            f"execution {execution.tenant}/{execution.execution_id}",
            f"{event.type} {event.id} ({cause.topic.value}, offset {cause.offset}) made no revision",
        )
    verdict.counts["execution events"] += len(causes)
