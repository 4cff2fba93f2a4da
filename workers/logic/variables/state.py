"""What is known of one execution: a head, a flat map of entries, and the requests that are open.

A state is loaded from committed entries, changed by one event at a time (`begin` ... `keep` or `undo`),
and never half changed: an event or request that cannot be accepted leaves it as it was.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, cast

from schemas.exact_json import JsonObject, JsonValue, dumps, loads
from workers.logic.variables import entries
from workers.logic.variables.entry_index import EntryIndex
from workers.logic.variables.head import Head, Mark, Status
from workers.logic.variables.open_requests import OpenRequests, Request
from workers.logic.variables.references import MISSING, Missing, descend, overlaid

#: Stands in the journal for an entry that the present event had not changed.
_UNCHANGED: Final = object()
#: A state keeps so many parsed values of at most so many bytes: less than its entries take.
_CACHED_VALUES: Final = 64
_CACHED_BYTES: Final = 2048


class ExecutionKey(NamedTuple):
    """Nothing crosses a tenant: the same execution id of two tenants is two executions."""

    tenant: str
    execution_id: str


class ExecutionState:
    """The working copy of one execution. The committed entries are read when needed and never changed here."""

    def __init__(self, key: ExecutionKey, head: Head, committed: Mapping[str, bytes]) -> None:
        self.key = key
        self._head = head
        self._committed = committed
        self._kept: dict[str, bytes | None] = {}
        self._changes: dict[str, bytes | None] = {}
        #: Bytes of all that the present event wrote, be it taken back again or not.
        self.written_bytes = 0
        #: What each change of the present event replaced, in order.
        self._journal: list[tuple[str, object]] = []
        self._begun = self.mark()
        self._values: dict[str, tuple[bytes, JsonValue]] = {}
        self.requests = OpenRequests()
        self._index = EntryIndex()
        for entry in committed:
            self._index.note(entry)
        for entry in committed:
            if entry.startswith(entries.REQUEST):
                self._reload_request(entry.removeprefix(entries.REQUEST))

    @classmethod
    def load(cls, key: ExecutionKey, head: bytes | None, committed: Mapping[str, bytes]) -> "ExecutionState":
        """Build the state of `key`; without a head it was never seen."""
        return cls(key, Head() if head is None else Head.from_json(head), committed)

    # -- the head

    @property
    def revision(self) -> int:
        """Return the number of applied events."""
        return self._head.revision

    @property
    def status(self) -> Status:
        """Return `open` before `execution.started`, then `running`, then how it ended."""
        return self._head.status

    @property
    def ended(self) -> bool:
        """Say whether the execution has ended."""
        return self._head.ended

    @property
    def started(self) -> bool:
        """Say whether `execution.started` was applied."""
        return self._head.workflow is not None

    @property
    def workflow(self) -> str | None:
        """Return the workflow's name."""
        return self._head.workflow

    @property
    def parent_execution_id(self) -> str | None:
        """Return the execution that called this one."""
        return self._head.parent_execution_id

    @property
    def store_bytes(self) -> int:
        """Return the size of all variables."""
        return self._head.store_bytes

    @property
    def head(self) -> bytes:
        """Return the head as JSON."""
        return self._head.to_json()

    @property
    def simulated(self) -> bool:
        """Say whether durable memory must be left as it is."""
        return self._head.simulated

    def start(self, workflow: str, parent_execution_id: str | None, *, simulated: bool, inherited: int) -> None:
        """Note what it runs, who called it, and how many revisions it inherited; one that has ended stays ended."""
        self._head.revision += inherited
        self._head.workflow = workflow
        self._head.simulated = simulated
        self._head.parent_execution_id = parent_execution_id
        if not self.ended:
            self._head.status = "running"

    def end(self, status: Status) -> None:
        """Give the execution its final status."""
        self._head.status = status

    def next_revision(self) -> int:
        """Count one more applied event."""
        self._head.revision += 1
        return self._head.revision

    def next_number(self) -> int:
        """Return the number of what is taken in now; numbers order requests, and turns in a domain."""
        self._head.requests += 1
        return self._head.requests

    # -- one event at a time

    def begin(self) -> None:
        """Start the changes of one event."""
        self._journal = []
        self._changes = {}
        self.written_bytes = 0
        self._begun = self.mark()

    def mark(self) -> Mark:
        """Return the present place, to which `rollback` goes back."""
        return Mark(len(self._journal), self._head.snapshot())

    def rollback(self, mark: Mark) -> None:
        """Drop the changes since `mark`."""
        undone = self._journal[mark.changes :]
        del self._journal[mark.changes :]
        for entry, before in reversed(undone):
            if before is _UNCHANGED:
                self._changes.pop(entry, None)
            else:
                self._changes[entry] = cast("bytes | None", before)
        self._head.restore(mark.head)
        for entry in dict.fromkeys(entry for entry, _ in undone):
            if self.raw(entry) is None:
                self._index.forget(entry)
            else:
                self._index.note(entry)
            if entry.startswith((entries.REQUEST, entries.ANSWERED)):
                self._reload_request(entry.split("/")[1])

    def keep(self) -> dict[str, bytes | None]:
        """Make the changes since `begin` part of the state and return them."""
        changes = self._changes
        self._kept.update(changes)
        self._changes = {}
        return changes

    def undo(self) -> None:
        """Drop the changes since `begin`."""
        self.rollback(self._begun)

    def committed(self) -> None:
        """Note that all kept changes are in the committed entries now."""
        self._kept = {}

    # -- entries

    def raw(self, entry: str) -> bytes | None:
        """Return the JSON bytes of `entry`, or None."""
        if entry in self._changes:
            return self._changes[entry]
        return self._raw_before(entry)

    def _raw_before(self, entry: str) -> bytes | None:
        return self._kept[entry] if entry in self._kept else self._committed.get(entry)

    def read(self, entry: str) -> JsonValue | Missing:
        """Return the value of `entry`; nobody may change it."""
        data = self.raw(entry)
        return MISSING if data is None else self._parsed(entry, data)

    def _parsed(self, entry: str, data: bytes) -> JsonValue:
        """Parse an entry; a small one that is asked for at each event is parsed once."""
        if len(data) > _CACHED_BYTES:
            return loads(data)
        known = self._values.get(entry)
        if known is not None and known[0] is data:
            return known[1]
        value = loads(data)
        if len(self._values) >= _CACHED_VALUES:
            self._values.clear()
        self._values[entry] = (data, value)
        return value

    def write(self, entry: str, value: object) -> None:
        """Set `entry`; nothing changes when it has that value already."""
        self.write_json(entry, dumps(value))

    def write_json(self, entry: str, data: bytes) -> None:
        """Set `entry` to JSON that is at hand, as `write` does."""
        if data != self.raw(entry):
            self.write_raw(entry, data)

    def _touch(self, entry: str) -> None:
        self._journal.append((entry, self._changes.get(entry, _UNCHANGED)))

    def write_raw(self, entry: str, data: bytes) -> None:
        """Set `entry` to JSON bytes."""
        self._journal.append((entry, self._changes.get(entry, _UNCHANGED)))
        self._changes[entry] = data
        self.written_bytes += len(data)
        self._index.note(entry)

    def remove(self, entry: str) -> None:
        """Delete `entry` if it is there; of one that the present event made nothing is left."""
        if self.raw(entry) is None:
            return
        self._touch(entry)
        if self._raw_before(entry) is None:
            del self._changes[entry]
        else:
            self._changes[entry] = None
        self._index.forget(entry)

    def note_absent(self, entry: str) -> None:
        """Record that `entry` is not there, whatever revisions say that others made before this one."""
        self._touch(entry)
        self._changes[entry] = None

    def entries_below(self, prefix: str) -> list[str]:
        """Return all entries that start with `prefix`, in order. It looks at every name: not for each event."""
        found = {
            entry
            for names in (self._committed, self._kept, self._changes)
            for entry in names
            if entry.startswith(prefix)
        }
        return sorted(entry for entry in found if self.raw(entry) is not None)

    # -- variables

    def size_of(self, entry: str) -> int:
        """Return the size of an entry's JSON, and of what overlays it; 0 when there is nothing."""
        size = len(self.raw(entry) or b"")
        below = self._index.below(entry)
        return size + sum(len(self.raw(deeper) or b"") for deeper in below) if below else size

    def put_variable(self, entry: str, data: bytes, replaced_bytes: int) -> None:
        """Set a variable, a part of one, or a scratchpad value; what it and its overlays took is `replaced_bytes`."""
        self._head.store_bytes += len(data) - replaced_bytes
        self._remove_below(entry)
        self.write_raw(entry, data)

    def drop_variable(self, entry: str) -> None:
        """Delete a variable with what overlays it, or a scratchpad value."""
        self._head.store_bytes -= self.size_of(entry)
        if self._remove_below(entry) and self.raw(entry) is None:
            self.note_absent(entry)  # so that readers of revisions learn that the variable itself is gone
        self.remove(entry)

    def _remove_below(self, entry: str) -> bool:
        below = list(self._index.below(entry))
        for deeper in below:
            self.remove(deeper)
        return bool(below)

    def clear_frame(self, frame: str) -> None:
        """Delete what one iteration wrote."""
        for entry in self._index.in_frame(frame):
            if entry[0] == "w":
                self.drop_variable("/".join(entry.split("/")[:3]))
            else:
                self.remove(entry)

    def holds(self, entry: str) -> bool:
        """Tell whether an entry is there, or another part of the variable that it belongs to."""
        parts = entry.split("/")
        top = "/".join(parts[: 3 if parts[0] == "w" else 2]) if parts[0] in ("v", "w") else entry
        return self.raw(top) is not None or bool(self._index.below(top))

    def has_variable(self, frame: str, name: str) -> bool:
        """Tell whether this very frame holds a variable."""
        entry = entries.variable(frame, (name,))
        return self.raw(entry) is not None or bool(self._index.below(entry))

    def variable(self, frame: str, segments: tuple[str, ...]) -> JsonValue | Missing:
        """Read a path in exactly this frame; only the entries at, above and below it are looked at."""
        entry = entries.variable(frame, segments)
        value = self.shallow(frame, segments)
        below = self._index.below(entry)
        if below:
            depth = entry.count("/") + 1
            for deeper in sorted(below, key=lambda name: (name.count("/"), name)):
                value = overlaid(value, entries.split(deeper)[depth:], cast("JsonValue", self.read(deeper)))
        return value

    def shallow(self, frame: str, segments: tuple[str, ...]) -> JsonValue | Missing:
        """Read a path without what overlays parts of it: its kind is right, its content may be older."""
        for depth in range(len(segments), 0, -1):
            entry = entries.variable(frame, segments[:depth])
            data = self.raw(entry)
            if data is not None:
                return descend(self._parsed(entry, data), segments[depth:])
        return {} if self._index.below(entries.variable(frame, segments)) else MISSING

    def lookup(self, frame: str, segments: tuple[str, ...]) -> JsonValue | Missing:
        """Read a path from `frame` outward: the innermost frame that has the name decides."""
        if not frame:
            return self.variable("", segments)
        for scope in entries.outward(frame):
            if self.has_variable(scope, segments[0]):
                return self.variable(scope, segments)
        return MISSING

    def all_variables(self) -> JsonObject:
        """Return the execution's own scope whole, as people see it, in the order of the names."""
        names = {entries.split(entry)[1] for entry in self.entries_below("v/")}
        return {name: cast("JsonValue", self.variable("", (name,))) for name in sorted(names)}

    # -- nodes, loops, scratchpad

    def nodes_of(self, frame: str) -> Iterator[tuple[str, JsonObject]]:
        """Return the nodes that ended in an iteration's frame, with their states, in the order of their ids."""
        for entry in self._index.in_frame(frame):
            if entry[0] == "n":
                yield entries.split(entry)[2], cast("JsonObject", self.read(entry))

    def loops_of(self, frame: str) -> list[str]:
        """Return the nodes of the loops that were opened in an iteration's frame."""
        return [entries.split(entry)[2] for entry in self._index.in_frame(frame) if entry[0] == "g"]

    def namespace(self, namespace: str) -> JsonObject:
        """Return a scratchpad namespace whole, in the order of its keys."""
        return {key: cast("JsonValue", self.scratchpad(namespace, key)) for key in self.keys_of(namespace)}

    def scratchpad(self, namespace: str, key: str) -> JsonValue | Missing:
        """Return one scratchpad value."""
        return self.read(entries.scratchpad(namespace, key))

    def keys_of(self, namespace: str) -> list[str]:
        """Return the keys of a scratchpad namespace, in order."""
        return [entries.split(entry)[2] for entry in self._index.in_namespace(namespace)]

    # -- requests

    def open_request(self, request: Request) -> None:
        """Count a request as outstanding, without an entry yet: most are answered by the same event."""
        self._touch(entries.request(request.key))
        self.requests.put(request)

    def save_request(self, request: Request) -> int:
        """Keep an open request for later events; return the size of its entry."""
        before = self.requests.get(request.key)
        if before is not None and before.awaits is not request.awaits:
            self._remove_answers(before)
        self.requests.put(request)
        data = dumps(request.fields())
        self.write_raw(entries.request(request.key), data)
        return len(data)

    def take_answer(self, request: Request, awaited: str, bound: JsonObject) -> None:
        """Bind what one answer gave a waiting request; most can run then, and nothing has to be kept."""
        self._touch(entries.request(request.key))
        self.requests.take_answer(request.key, awaited, bound)

    def save_answer(self, request: Request, awaited: str, bound: JsonObject) -> int:
        """Keep what one answer gave a request that waits for more; return the bytes of all its answers."""
        data = dumps(bound)
        self.write_raw(entries.answered(request.key, awaited), data)
        return self.requests.count_answer(request.key, len(data))

    def close_request(self, request: Request) -> None:
        """Take a request from the open ones."""
        self._remove_answers(request)
        self.requests.drop(request.key)
        self.remove(entries.request(request.key))

    def _remove_answers(self, request: Request) -> None:
        waiting = self.requests.waiting(request.key)
        if waiting is not None and waiting.answers:
            for awaited in request.awaited:
                self.remove(entries.answered(request.key, awaited))

    def _reload_request(self, key: str) -> None:
        self.requests.drop(key)
        data = self.raw(entries.request(key))
        if data is None:
            return
        request = Request.from_json(data)
        answers = {
            awaited: cast("JsonObject", loads(answer))
            for awaited in request.awaited
            if (answer := self.raw(entries.answered(key, awaited))) is not None
        }
        self.requests.put(request, answers)
