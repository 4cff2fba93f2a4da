"""What is known of one execution: a head, a flat map of entries, and the requests that are open.

A state is loaded from committed entries, changed by one event at a time (`begin` ... `keep` or `undo`),
and never half changed: an event that cannot be accepted leaves it as it was.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, cast

from schemas.exact_json import JsonObject, JsonValue, dumps, loads
from workers.logic.variables import entries
from workers.logic.variables.open_requests import OpenRequests, Request
from workers.logic.variables.references import MISSING, Missing, descend

Status: TypeAlias = Literal["open", "running", "completed", "failed", "cancelled"]
_ENDED: Final = frozenset({"completed", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class ExecutionKey:
    """Nothing crosses a tenant: the same execution id of two tenants is two executions."""

    tenant: str
    execution_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The small part that every event changes. `store_bytes` counts the values of all variables."""

    revision: int = 0
    status: Status = "open"
    requests: int = 0
    store_bytes: int = 0
    workflow: str | None = None
    parent_execution_id: str | None = None

    def to_json(self) -> bytes:
        """Write the head as the executions row and the table hold it."""
        return dumps(
            {
                "revision": self.revision,
                "status": self.status,
                "requests": self.requests,
                "store_bytes": self.store_bytes,
                "workflow": self.workflow,
                "parent_execution_id": self.parent_execution_id,
            }
        )

    @classmethod
    def from_json(cls, data: bytes) -> "Head":
        """Read what `to_json` wrote."""
        return cls(**cast("dict[str, object]", loads(data)))  # type: ignore[arg-type]


class ExecutionState:
    """The working copy of one execution. `entries` is read lazily and never changed here."""

    def __init__(self, key: ExecutionKey, head: Head, committed: Mapping[str, bytes]) -> None:
        self.key = key
        self._head = head
        self._committed = committed
        self._kept: dict[str, bytes | None] = {}
        self._changes: dict[str, bytes | None] = {}
        self._before = head
        self._requests = OpenRequests(())
        self._deeper: dict[str, dict[str, None]] = {}
        self._nodes: dict[str, dict[str, None]] = {}
        self._scratchpad: dict[str, dict[str, None]] = {}
        self._index()

    @classmethod
    def load(cls, key: ExecutionKey, head: bytes | None, committed: Mapping[str, bytes]) -> "ExecutionState":
        """Build the state of `key`; without a head it was never seen."""
        return cls(key, Head() if head is None else Head.from_json(head), committed)

    def _index(self) -> None:
        """Read off the entry names what else would need a search per event."""
        requests = []
        for entry in self._committed:
            self._note(entry)
            if entry.startswith(entries.REQUEST):
                requests.append(Request.from_json(self._committed[entry]))
        self._requests = OpenRequests(requests)

    def _note(self, entry: str) -> None:
        """Index one entry name: overlaid variables, the nodes of a frame, the keys of a namespace."""
        kind = entry[0]
        if kind in {"v", "w"}:
            slashes = 1 if kind == "v" else 2
            if entry.count("/") > slashes:
                top = "/".join(entry.split("/", slashes + 1)[: slashes + 1])
                self._deeper.setdefault(top, {})[entry] = None
        elif kind == "n":
            _, frame, node_id = entries.split(entry)
            if frame:
                self._nodes.setdefault(frame, {})[node_id] = None
        elif kind == "k":
            _, namespace, name = entries.split(entry)
            self._scratchpad.setdefault(namespace, {})[name] = None

    # -- what it is

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
        return self._head.status in _ENDED

    @property
    def started(self) -> bool:
        """Say whether `execution.started` was applied."""
        return self._head.status != "open"

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

    def set_head(self, **fields: object) -> None:
        """Change fields of the head."""
        self._head = replace(self._head, **fields)  # type: ignore[arg-type]

    # -- one event at a time

    def begin(self) -> None:
        """Start the changes of one event."""
        self._before = self._head
        self._changes = {}

    def keep(self) -> dict[str, bytes | None]:
        """Make the changes since `begin` part of the state and return them."""
        changes = self._changes
        self._kept.update(changes)
        self._changes = {}
        self._before = self._head
        return changes

    def undo(self) -> None:
        """Drop the changes since `begin`."""
        touched_requests = any(entry.startswith(entries.REQUEST) for entry in self._changes)
        self._head = self._before
        self._changes = {}
        if touched_requests:
            found = (self.raw(entry) for entry in self.entries_below(entries.REQUEST))
            self._requests = OpenRequests(Request.from_json(data) for data in found if data is not None)

    def committed(self) -> None:
        """Note that all kept changes are in the committed entries now."""
        self._kept = {}

    # -- entries

    def raw(self, entry: str) -> bytes | None:
        """Return the JSON bytes of `entry`, or None."""
        if entry in self._changes:
            return self._changes[entry]
        if entry in self._kept:
            return self._kept[entry]
        return self._committed.get(entry)

    def read(self, entry: str) -> JsonValue | Missing:
        """Return the value of `entry`."""
        data = self.raw(entry)
        return MISSING if data is None else loads(data)

    def write(self, entry: str, value: object) -> int:
        """Set `entry` and return the size of its JSON."""
        return self.write_raw(entry, dumps(value))

    def write_raw(self, entry: str, data: bytes) -> int:
        """Set `entry` to JSON bytes and return their number."""
        self._changes[entry] = data
        self._note(entry)
        return len(data)

    def remove(self, entry: str) -> None:
        """Delete `entry` if it is there."""
        if self.raw(entry) is not None:
            self._changes[entry] = None

    def entries_below(self, prefix: str) -> Iterator[str]:
        """Return the entries that start with `prefix`."""
        seen = dict.fromkeys(entry for entry in self._committed if entry.startswith(prefix))
        seen.update(dict.fromkeys(entry for entry in self._kept if entry.startswith(prefix)))
        seen.update(dict.fromkeys(entry for entry in self._changes if entry.startswith(prefix)))
        return (entry for entry in seen if self.raw(entry) is not None)

    # -- variables

    def set_variable(self, frame: str, segments: tuple[str, ...], value: object) -> None:
        """Write a variable, or a path inside of one; what lies deeper is replaced."""
        entry = entries.variable(frame, segments)
        before = self.size_of(entry) + self._drop_deeper(entry, frame, segments)
        self.set_head(store_bytes=self._head.store_bytes + self.write(entry, value) - before)

    def size_of(self, entry: str) -> int:
        """Return the size of an entry's JSON; 0 when there is none."""
        return len(self.raw(entry) or b"")

    def all_variables(self) -> JsonObject:
        """Return the execution's own scope whole, as people see it."""
        found: JsonObject = {}
        for entry in self.entries_below("v/"):
            name = entries.split(entry)[1]
            if name not in found:
                value = self.variable("", (name,))
                if value is not MISSING:
                    found[name] = value
        return found

    def remove_variable(self, frame: str, name: str) -> None:
        """Delete a variable and what overlays it."""
        entry = entries.variable(frame, (name,))
        freed = self.size_of(entry) + self._drop_deeper(entry, frame, (name,))
        self.remove(entry)
        self.set_head(store_bytes=self._head.store_bytes - freed)

    def _drop_deeper(self, entry: str, frame: str, segments: tuple[str, ...]) -> int:
        freed = 0
        for deeper in self._deeper.get(entries.variable(frame, segments[:1]), ()):
            if deeper.startswith(entry + "/"):
                freed += self.size_of(deeper)
                self.remove(deeper)
        return freed

    def variable(self, frame: str, segments: tuple[str, ...]) -> JsonValue | Missing:
        """Read a path in exactly this frame."""
        top = entries.variable(frame, segments[:1])
        deeper = self._deeper.get(top)
        if deeper is None:
            value = self.read(top)
            return value if value is MISSING or len(segments) == 1 else descend(value, segments[1:])
        return self._overlaid(top, deeper, segments[1:])

    def _overlaid(self, top: str, deeper: Mapping[str, None], rest: tuple[str, ...]) -> JsonValue | Missing:
        value = self.read(top)
        depth = top.count("/") + 1
        for entry in sorted(deeper, key=lambda name: name.count("/")):
            part = self.read(entry)
            if part is not MISSING:
                value = _with(value, entries.split(entry)[depth:], part)
        return value if value is MISSING else descend(value, rest)

    def lookup(self, frame: str, segments: tuple[str, ...]) -> JsonValue | Missing:
        """Read a path from `frame` outward: the innermost frame that has the name decides."""
        for scope in entries.outward(frame):
            value = self.variable(scope, segments[:1])
            if value is not MISSING:
                return descend(value, segments[1:])
        return MISSING

    # -- requests, nodes, scratchpad

    @property
    def requests(self) -> OpenRequests:
        """Return the open requests."""
        return self._requests

    def next_request_number(self) -> int:
        """Return the number of the request that is taken in now; it orders the open ones."""
        self.set_head(requests=self._head.requests + 1)
        return self._head.requests

    def save_request(self, request: Request) -> None:
        """Open or update a request."""
        self._requests.put(request)
        self.write(entries.request(request.key), request.fields())

    def close_request(self, request: Request) -> None:
        """Take a request from the open ones."""
        self._requests.drop(request.key)
        self.remove(entries.request(request.key))

    def nodes_of(self, frame: str) -> Iterator[tuple[str, JsonObject]]:
        """Return the nodes that ended in an iteration's frame, with their states."""
        for node_id in self._nodes.get(frame, ()):
            state = self.read(entries.node(frame, node_id))
            if isinstance(state, dict):
                yield node_id, state

    def set_scratchpad(self, namespace: str, key: str, value: JsonValue) -> None:
        """Set one scratchpad value."""
        entry = entries.scratchpad(namespace, key)
        before = self.size_of(entry)
        self.set_head(store_bytes=self._head.store_bytes + self.write(entry, value) - before)

    def remove_scratchpad(self, namespace: str, key: str) -> None:
        """Delete one scratchpad value."""
        entry = entries.scratchpad(namespace, key)
        self.set_head(store_bytes=self._head.store_bytes - self.size_of(entry))
        self.remove(entry)

    def namespace(self, namespace: str) -> JsonObject:
        """Return a scratchpad namespace whole."""
        found: JsonObject = {}
        for name in self._scratchpad.get(namespace, ()):
            value = self.read(entries.scratchpad(namespace, name))
            if value is not MISSING:
                found[name] = value
        return found


def _with(value: JsonValue | Missing, path: list[str], part: JsonValue) -> JsonValue:
    """Return `value` with `part` at `path`; objects on the way are copied, never changed."""
    if not path:
        return part
    base = dict(value) if isinstance(value, dict) else {}
    base[path[0]] = _with(base.get(path[0], MISSING), path[1:], part)
    return base
