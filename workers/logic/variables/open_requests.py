"""Requests that are not answered yet: what they wait for, and which of them provides a name."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from schemas.exact_json import JsonObject, JsonValue, loads

#: Awaited like a request: `execution.started`.
START: Final = "start"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request that is not answered yet.

    `awaits` maps the key of another open request (or `START`) to the paths that its answer binds; `gates` maps
    it to the port that must be among its outputs (empty: it must end well). `bindings` holds what was known on
    arrival.
    """

    key: str
    number: int
    type: str
    provides: tuple[str, ...]
    node_id: str = ""
    frame: str = ""
    body: JsonObject = field(default_factory=dict)
    #: The address or scratchpad namespace in whose order the request runs.
    domain: str | None = None
    awaits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gates: Mapping[str, str] = field(default_factory=dict)
    bindings: Mapping[str, JsonValue] = field(default_factory=dict)
    #: It could not run on arrival: its paths are in `bindings`, the present store is not asked.
    waited: bool = False
    sent: bool = False
    event_id: str = ""
    source: str = ""
    traceparent: str | None = None

    @property
    def is_bound(self) -> bool:
        """Nothing is awaited any more."""
        return not (self.awaits or self.gates)

    def fields(self) -> dict[str, object]:
        """Return the fields as the request's entry holds them: empty ones are left out."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name))}

    @classmethod
    def from_json(cls, data: bytes) -> "Request":
        """Read what `fields` gave."""
        fields = cast("dict[str, object]", loads(data))
        awaits = cast("dict[str, list[str]]", fields.pop("awaits", {}))
        fields["awaits"] = {key: tuple(paths) for key, paths in awaits.items()}
        fields["provides"] = tuple(cast("list[str]", fields["provides"]))
        return cls(**fields)  # type: ignore[arg-type]


class OpenRequests:
    """The open requests, oldest first, found by what they provide and by what they wait for."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self._by_key: dict[str, Request] = {}
        self._by_name: dict[str, dict[str, None]] = {}
        self._waiters: dict[str, dict[str, None]] = {}
        for request in sorted(requests, key=lambda request: request.number):
            self.put(request)

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Request]:
        return iter(list(self._by_key.values()))

    def get(self, key: str) -> Request | None:
        """Return the open request of that key."""
        return self._by_key.get(key)

    def put(self, request: Request) -> None:
        """Add a request, or replace what is known of it."""
        self._by_key[request.key] = request
        for name in request.provides:
            self._by_name.setdefault(name, {})[request.key] = None
        for awaited in (*request.awaits, *request.gates):
            self._waiters.setdefault(awaited, {})[request.key] = None

    def drop(self, key: str) -> None:
        """Remove a request."""
        request = self._by_key.pop(key, None)
        for name in request.provides if request is not None else ():
            self._by_name[name].pop(key, None)

    def providing(self, name: str) -> Iterator[Request]:
        """Return the requests that will provide `name`, latest first."""
        for key in reversed(self._by_name.get(name, {})):
            yield self._by_key[key]

    def pop_waiting_for(self, key: str) -> list[Request]:
        """Return the requests that wait for `key`, oldest first, and forget that they do."""
        found = [self._by_key[waiter] for waiter in self._waiters.pop(key, ()) if waiter in self._by_key]
        return sorted(found, key=lambda request: request.number)
