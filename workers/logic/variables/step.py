"""One event being applied: what it read, what it sends, and the state that it changes."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from schemas.envelope import Event
from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue, dumps, is_deeper
from schemas.identity import derived_id
from schemas.limits import Limits
from topics.catalog import Topic
from topics.codec import encode
from workers.logic.memory.commands import Rules
from workers.logic.memory.conversations import Listing
from workers.logic.memory.items import Item
from workers.logic.memory.timestamps import timestamp
from workers.logic.variables import entries
from workers.logic.variables.head import Mark
from workers.logic.variables.open_requests import Request
from workers.logic.variables.references import Read
from workers.logic.variables.scope import Scope
from workers.logic.variables.state import ExecutionState
from workers.logic.variables.templates import Template

SOURCE = "/tallystick/variables"
#: What a recorded read takes beside its path.
READ_BYTES = 64
#: Quotes and backslashes in so short a path count once, though they are written as two bytes.
_SHORT_PATH_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class ForkSource:
    """The entries that a forked execution begins with; `found` is False when the source has no such revision."""

    entries: Mapping[str, bytes]
    found: bool


@dataclass(frozen=True, slots=True)
class RealMemory:
    """What was read of real memory for simulations. An address that is not listed was not asked for yet."""

    rules: Rules = field(default_factory=Rules)
    items: Mapping[str, Item] = field(default_factory=dict)
    listings: Mapping[str, Listing] = field(default_factory=dict)


class Context(NamedTuple):
    """What the fold may not find out by itself: the time, the limits, and another execution's past."""

    now: datetime
    limits: Limits
    fork: ForkSource | None = None
    #: Only simulated runs look at it.
    memory: RealMemory | None = None
    #: The identity of the event, where it is at hand already.
    key: UUID | None = None


class Outgoing(NamedTuple):
    """An event to publish after the commit, with its topic and Kafka key."""

    topic: Topic
    key: str
    event: Event
    #: The event as it is published.
    value: bytes


class Ending(NamedTuple):
    """What others may have waited for: a request that has just ended, or the start of the run."""

    key: str
    type: str
    frame: str
    #: Where the next one may run now: an address or a namespace.
    freed_domain: str | None
    ended: str
    #: By provided name.
    outputs: JsonObject


class StepMark(NamedTuple):
    """A place in the work of a step, to go back to."""

    state: Mark
    reads: int
    outgoing: int


@dataclass(slots=True)
class Step:
    """The event, the state, and what comes of bringing them together."""

    state: ExecutionState
    event: Event
    context: Context
    #: The event's key, as the caller knows it already.
    key: UUID
    reads: list[JsonObject] = field(default_factory=list)
    outgoing: list[Outgoing] = field(default_factory=list)
    #: The requests that may run, by key, in order; with the answers that only memory has, by awaited key.
    runnable: dict[str, Mapping[str, JsonObject]] = field(default_factory=dict)
    endings: deque[Ending] = field(default_factory=deque)
    #: The how manieth revision this is that the event makes.
    part: int = 1
    #: Bytes of what it reads and sends.
    said_bytes: int = 0
    #: Set when the event was recorded but its content could not be kept: it is dead-lettered as well.
    failure: tuple[str, str] | None = None
    ended_now: bool = False
    #: The arrived request's template: most requests run in the step that takes them in.
    template: Template | None = None
    #: What a parent's node gets when the execution completes.
    given: JsonObject = field(default_factory=dict)

    @property
    def key_text(self) -> str:
        """Return the event's key as it stands in entries."""
        return str(self.key)

    @property
    def limits(self) -> Limits:
        """Return the limits in force."""
        return self.context.limits

    @property
    def is_full(self) -> bool:
        """Tell whether the rest should be left to a further revision."""
        return self.said_bytes + self.state.written_bytes >= self.limits.step_bytes

    def mark(self) -> StepMark:
        """Return the present place, to which `rollback` goes back."""
        return StepMark(self.state.mark(), len(self.reads), len(self.outgoing))

    def rollback(self, mark: StepMark) -> None:
        """Take back what was changed, read and sent since `mark`."""
        self.state.rollback(mark.state)
        del self.reads[mark.reads :]
        del self.outgoing[mark.outgoing :]

    # -- reading

    def lookup_in(self, frame: str) -> Scope:
        """Return the look-up of references that stand in `frame`."""
        return Scope(self.state, frame)

    def note_reads(self, reads: tuple[Read, ...], node_id: str | None = None) -> list[JsonObject]:
        """Record what was read, for the revision; return it as it is published.

        Raises `Rejection` (`result_too_large`) for paths that would not fit into an answer.
        """
        size = sum(path_bytes(read.path) for read in reads) + len(reads) * READ_BYTES
        if size > self.limits.result_bytes:
            raise Rejection(
                "result_too_large",
                f"its {len(reads)} references are too long to record them; reference less",
            )
        self.said_bytes += size
        noted: list[JsonObject] = [
            {"path": read.path, "found": read.found, "fallback": read.fallback} for read in reads
        ]
        own = self.event.data.get("node_id") or self.event.data.get("activity_id")
        if node_id is None or node_id == own:
            self.reads += noted
        else:
            self.reads += [{**read, "node_id": node_id} for read in noted]
        return noted

    # -- sending

    def send(self, topic: Topic, key: str, event: Event) -> None:
        """Publish `event` once this revision is committed."""
        value = encode(event)
        self.said_bytes += len(value)
        self.outgoing.append(Outgoing(topic, key, event, value))

    def caused(
        self, type_: str, role: str, data: JsonObject, *, cause: UUID | None = None, subject: str | None = None
    ) -> Event:
        """Build an event that the present one (or `cause`) brings about, of this execution or of `subject`."""
        return Event(
            id=derived_id(cause or self.key, role),
            source=SOURCE,
            type=type_,
            subject=subject or self.state.key.execution_id,
            tenant=self.state.key.tenant,
            time=timestamp(self.context.now),
            traceparent=self.event.traceparent,
            data=data,
        )

    def answer(self, request: Request, type_: str, data: JsonObject) -> None:
        """Publish the one answer of `request` on node-results."""
        answer: JsonObject = {"node_id": request.node_id}
        if "activity_id" in request.body:
            answer["activity_id"] = request.node_id
        iteration = request.body.get("iteration")
        if iteration:
            answer["iteration"] = iteration
        answer["request_id"] = request.event_id
        answer["request_source"] = request.source
        answer.update(data)
        self.send_answer(type_, answer, cause=UUID(request.key))

    def send_answer(self, type_: str, data: JsonObject, *, cause: UUID | None = None) -> None:
        """Publish an answer to the present event (or to `cause`)."""
        self.send(Topic.NODE_RESULTS, self.state.key.execution_id, self.caused(type_, "answer", data, cause=cause))

    # -- writing

    def set_variable(self, frame: str, segments: tuple[str, ...], value: JsonValue) -> None:
        """Write a variable. Raises `Rejection` (`store_too_large`, `too_deep`) before anything is written."""
        self.set_raw_variable(frame, segments, dumps(value))

    def set_raw_variable(self, frame: str, segments: tuple[str, ...], data: bytes) -> None:
        """Write a variable whose JSON is at hand, as `set_variable` does."""
        self._put(entries.variable(frame, segments), data, ".".join(segments), len(segments) - 1)

    def set_scratchpad(self, namespace: str, key: str, value: JsonValue) -> None:
        """Write a scratchpad value, within the limits of a variable."""
        self._put(entries.scratchpad(namespace, key), dumps(value), f"memory.{namespace}.{key}", 0)

    def _put(self, entry: str, data: bytes, name: str, levels_above: int) -> None:
        replaced = self.state.size_of(entry)
        size = self.state.store_bytes + len(data) - replaced
        if size > self.limits.store_bytes:
            raise Rejection(
                "store_too_large",
                f"with {name[:80]!r} the store would hold {size} bytes, {self.limits.store_bytes} are allowed; "
                "keep large values elsewhere and store a reference, or clear what is not needed any more",
            )
        self._check_depth(data, self.limits.value_levels - levels_above, name[:80])
        self.state.put_variable(entry, data, replaced)

    def check_result(self, value: object, what: str) -> None:
        """Raise `Rejection` (`result_too_large`, `too_deep`) when a resolved result is beyond the limits."""
        data = dumps(value)
        if len(data) > self.limits.result_bytes:
            raise Rejection(
                "result_too_large",
                f"{what} resolves to {len(data)} bytes, {self.limits.result_bytes} are allowed; reference less",
            )
        self._check_depth(data, self.limits.value_levels, what)

    def _check_depth(self, data: bytes, levels: int, what: str) -> None:
        if is_deeper(data, levels):
            raise Rejection("too_deep", f"{what} is nested deeper than {levels} levels; flatten it")

    def set_last_output(self, pointer: JsonObject) -> None:
        """Point `last_output` at a variable (`frame`, `name`) or at `previous`, or give it a `value` of its own."""
        self.state.write(entries.LAST, pointer)


def path_bytes(path: str) -> int:
    """Return what a path takes in JSON: texts that say more than they look like hold their own escapes."""
    # Long ones alone are written out: few are, and every event has paths.
    return len(path) if len(path) <= _SHORT_PATH_CHARACTERS and path.isascii() else len(dumps(path))
