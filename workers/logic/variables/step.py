"""One event being applied: what it read, what it sends, and the state that it changes."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from schemas.envelope import Event
from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue, Raw, dumps
from schemas.identity import derived_id, key_of
from schemas.limits import Limits
from topics.catalog import Topic
from workers.logic.memory.commands import Rules
from workers.logic.memory.conversations import Listing
from workers.logic.memory.items import Item
from workers.logic.variables import entries
from workers.logic.variables.open_requests import Request
from workers.logic.variables.references import MISSING, Missing, Path, Read, descend
from workers.logic.variables.state import ExecutionState

SOURCE = "/tallystick/variables"


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


@dataclass(frozen=True, slots=True)
class Context:
    """What the fold may not find out by itself: the time, the limits, and another execution's past."""

    now: datetime
    limits: Limits
    fork: ForkSource | None = None
    #: Only simulated runs look at it.
    memory: RealMemory | None = None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """An event to publish after the commit, with its topic and Kafka key."""

    topic: Topic
    key: str
    event: Event


@dataclass(frozen=True, slots=True)
class Ending:
    """A request that has just ended, with the outputs by provided name that others may wait for."""

    request: Request
    outputs: JsonObject
    ended: str


@dataclass(slots=True)
class Step:
    """The event, the state, and what comes of bringing them together."""

    state: ExecutionState
    event: Event
    context: Context
    key: UUID = field(init=False)
    reads: list[JsonObject] = field(default_factory=list)
    outgoing: list[Outgoing] = field(default_factory=list)
    runnable: deque[Request] = field(default_factory=deque)
    endings: deque[Ending] = field(default_factory=deque)
    #: Set when the event was recorded but its content could not be kept: it is dead-lettered as well.
    failure: tuple[str, str] | None = None
    ended_now: bool = False

    def __post_init__(self) -> None:
        self.key = key_of(self.event)

    @property
    def limits(self) -> Limits:
        """Return the limits in force."""
        return self.context.limits

    # -- reading

    def lookup_in(self, frame: str) -> "Scope":
        """Return the look-up of references that stand in `frame`."""
        return Scope(self.state, frame)

    def note_reads(self, reads: tuple[Read, ...], node_id: str | None = None) -> list[JsonObject]:
        """Record what was read, for the revision; return it as it is published."""
        noted: list[JsonObject] = [
            {"path": read.path, "found": read.found, "fallback": read.fallback} for read in reads
        ]
        own = self.event.data.get("node_id") or self.event.data.get("activity_id")
        for read in noted:
            self.reads.append(read if node_id is None or node_id == own else {**read, "node_id": node_id})
        return noted

    # -- sending

    def send(self, topic: Topic, key: str, event: Event) -> None:
        """Publish `event` once this revision is committed."""
        self.outgoing.append(Outgoing(topic, key, event))

    def caused(self, type_: str, role: str, data: JsonObject, *, cause: UUID | None = None) -> Event:
        """Build an event of this execution that the present event (or `cause`) brings about."""
        return Event(
            id=derived_id(cause or self.key, role),
            source=SOURCE,
            type=type_,
            subject=self.state.key.execution_id,
            tenant=self.state.key.tenant,
            time=self.context.now.isoformat(),
            traceparent=self.event.traceparent,
            data=data,
        )

    def addressed_to(self, event: Event, execution_id: str) -> Event:
        """Return `event` as one of another execution of the same tenant."""
        return replace(event, subject=execution_id)

    def answer(self, request: Request, type_: str, data: JsonObject) -> None:
        """Publish the one answer of `request` on node-results."""
        answer: JsonObject = {"node_id": request.node_id}
        if request.type == "activity.scheduled":
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

    def set_variable(self, frame: str, segments: tuple[str, ...], value: object) -> None:
        """Write a variable. Raises `Rejection` (`store_too_large`) before anything is written."""
        data = dumps(value)
        size = self.state.store_bytes + len(data) - self.state.size_of(entries.variable(frame, segments))
        if size > self.limits.store_bytes:
            raise Rejection(
                "store_too_large",
                f"with {'.'.join(segments)!r} the store would hold {size} bytes, {self.limits.store_bytes} are "
                "allowed; keep large values elsewhere and store a reference",
            )
        self.state.set_variable(frame, segments, Raw(data))

    def check_room(self, more_bytes: int) -> None:
        """Raise `Rejection` (`store_too_large`) when so much more may not fit: before the first of several writes."""
        size = self.state.store_bytes + more_bytes
        if size > self.limits.store_bytes:
            raise Rejection(
                "store_too_large",
                f"the store would hold up to {size} bytes, {self.limits.store_bytes} are allowed; "
                "keep large values elsewhere and store references",
            )

    def set_last_output(self, pointer: JsonObject) -> None:
        """Point `last_output` at a variable (`frame`, `name`) or at `previous`, or give it a `value` of its own."""
        self.state.write(entries.LAST, pointer)

    def check_result(self, value: object, what: str) -> None:
        """Raise `Rejection` (`result_too_large`) when a resolved result is beyond the limit."""
        size = len(dumps(value))
        if size > self.limits.result_bytes:
            raise Rejection(
                "result_too_large",
                f"{what} resolves to {size} bytes, {self.limits.result_bytes} are allowed; reference less",
            )


@dataclass(frozen=True, slots=True)
class Scope:
    """Looks paths up from a frame outward; knows the reserved scopes and the aliases of seed 001."""

    state: ExecutionState
    frame: str

    def __call__(self, path: Path) -> JsonValue | Missing:
        """Return the value at `path`, or `MISSING`."""
        root, rest = path.segments[0], path.segments[1:]
        match root:
            case "_prev":
                return descend_or_missing(self._pointed(entries.PREVIOUS), rest)
            case "last_output":
                return descend_or_missing(self._pointed(entries.LAST), rest)
            case "last_output_parsed":
                return descend_or_missing(self._pointed(entries.LAST, of_node=True), rest)
            case "memory_manager":
                return descend_or_missing(self._pointed(entries.MEMORY_MANAGER), rest)
            case "state" if rest:
                return self.state.lookup(self.frame, rest)
            case "outputs" if rest:
                # outputs.NODE.parsed.field: `parsed` is the node's output itself.
                inner = rest[2:] if rest[1:2] == ("parsed",) else rest[1:]
                return self.state.lookup(self.frame, (rest[0], *inner))
            case "memory" if len(rest) > 1:
                value = self.state.read(entries.scratchpad(rest[0], rest[1]))
                return descend_or_missing(value, rest[2:])
            case "memory" if rest:
                return dict(self.state.namespace(rest[0])) or MISSING
            case _:
                return self.state.lookup(self.frame, path.segments)

    def _pointed(self, entry: str, *, of_node: bool = False) -> JsonValue | Missing:
        """Follow a pointer; `of_node` asks for the node's own output where another value was passed on."""
        pointer = self.state.read(entry)
        if not isinstance(pointer, dict):
            return MISSING
        if "value" in pointer and not (of_node and "name" in pointer):
            return pointer["value"]
        if "previous" in pointer:
            return self._pointed(entries.PREVIOUS)
        return self.state.variable(str(pointer["frame"]), (str(pointer["name"]),))


def descend_or_missing(value: JsonValue | Missing, rest: tuple[str, ...]) -> JsonValue | Missing:
    """Go down `rest` into `value` unless it is missing already."""
    return value if value is MISSING else descend(value, rest)
