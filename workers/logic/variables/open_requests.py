"""The requests that are not answered yet, and how they are found: by place, by what they await, by turn.

Each index keeps its requests in order, oldest first; none of them is searched from end to end.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from operator import attrgetter
from typing import Final, TypeAlias, cast

from schemas.exact_json import JsonObject, dumps, loads
from workers.logic.variables import entries

#: Awaited like a request: `execution.started`.
START: Final = "start"
_Keys = dict[str, None]
#: What an index finds requests by: a frame and a name, a domain, a loop, an awaited key.
Group: TypeAlias = tuple[str, ...]
_Place: TypeAlias = "tuple[dict[Group, _Keys], Group, Callable[[Request], int]]"
_NONE: Final[_Keys] = {}


# Not frozen: a frozen dataclass takes three times as long to make, and they are made for each event.
@dataclass(slots=True, kw_only=True)
class Request:
    """One request as it arrived, or as it was sent; to change it means to make another.

    `awaits` maps the key of another open request (or `START`) to the paths that its answer binds; `gates` maps
    it to the `after` texts (`NODE` or `NODE.PORT`) that must then hold, none where only its end matters.
    `bindings` is what was known on arrival.
    """

    key: str
    number: int
    type: str
    #: The node and variables that its answer gives.
    provides: tuple[str, ...] = ()
    node_id: str = ""
    frame: str = ""
    body: JsonObject = field(default_factory=dict)
    #: The memory address or scratchpad namespace in whose order the request runs, and its place in that order.
    domain: str | None = None
    turn: int = 0
    awaits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gates: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    bindings: JsonObject = field(default_factory=dict)
    #: The paths of each reference in their order of preference, where any has more than one.
    choices: tuple[tuple[str, ...], ...] = ()
    #: It could not run on arrival: its paths are bound, the present store is not asked.
    waited: bool = False
    #: Its command or its inputs went out: it waits for an answer from outside.
    sent: bool = False
    #: A later request of the same node was answered before it: its answer does not count for the node any more.
    superseded: bool = False
    event_id: str = ""
    source: str = ""
    traceparent: str | None = None

    @property
    def awaited(self) -> list[str]:
        """Return the keys of all that the request waited for when it arrived."""
        return [*self.awaits, *(key for key in self.gates if key not in self.awaits)]

    def as_sent(self, body: JsonObject) -> "Request":
        """Return what is left of the request once its command or inputs went out: who asked, and where it stands."""
        return Request(
            key=self.key,
            number=self.number,
            type=self.type,
            provides=self.provides,
            node_id=self.node_id,
            frame=self.frame,
            body=body,
            domain=self.domain,
            turn=self.turn,
            sent=True,
            superseded=self.superseded,
            event_id=self.event_id,
            source=self.source,
            traceparent=self.traceparent,
        )

    def fields(self) -> dict[str, object]:
        """Return the fields as the request's entry holds them: empty ones are left out."""
        return {name: value for name, value in zip(_FIELDS, _VALUES(self), strict=True) if value}

    @classmethod
    def from_json(cls, data: bytes) -> "Request":
        """Read what `fields` gave."""
        fields = cast("dict[str, object]", loads(data))
        for name in ("awaits", "gates"):
            texts = cast("dict[str, list[str]]", fields.get(name, {}))
            fields[name] = {key: tuple(values) for key, values in texts.items()}
        fields["choices"] = tuple(map(tuple, cast("list[list[str]]", fields.get("choices", ()))))
        fields["provides"] = tuple(cast("list[str]", fields.get("provides", ())))
        return cls(**fields)  # type: ignore[arg-type]


_FIELDS: Final = Request.__slots__
_VALUES: Final = attrgetter(*_FIELDS)


@dataclass(slots=True)
class Waiting:
    """What a request still waits for, what is bound so far, and how many answers are kept for it."""

    left: _Keys
    bound: JsonObject
    answers: int = 0
    answer_bytes: int = 0


class OpenRequests:
    """The open requests of one execution."""

    def __init__(self) -> None:
        self._by_key: dict[str, Request] = {}
        self._by_place: dict[Group, _Keys] = {}
        self._by_domain: dict[Group, _Keys] = {}
        self._in_loop: dict[Group, _Keys] = {}
        self._waiters: dict[Group, _Keys] = {}
        self._waiting: dict[str, Waiting] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Request]:
        return iter(sorted(self._by_key.values(), key=_number))

    def get(self, key: str) -> Request | None:
        """Return the open request of that key."""
        return self._by_key.get(key)

    # -- changing them

    def put(self, request: Request, answers: Mapping[str, JsonObject] | None = None) -> None:
        """Add a request, or replace what is known of it; `answers` are those it has had already, by awaited key."""
        key = request.key
        before = self._by_key.get(key)
        self._by_key[key] = request
        if before is None or before.domain != request.domain:
            for index, group, order in self._groups(request):
                self._insert(index, group, request, order)
        if before is not None and before.awaits is request.awaits:
            return  # what it waits for is as it was, and so are the answers that it has had
        self._stop_waiting(key)
        if request.awaits or request.gates:
            waiting = self._waiting[key] = Waiting(dict.fromkeys(request.awaited), dict(request.bindings))
            for awaited in waiting.left:
                self._waiters.setdefault((awaited,), {})[key] = None
            for awaited, bound in (answers or {}).items():
                self.take_answer(key, awaited, bound)
                self.count_answer(key, len(dumps(bound)))

    def drop(self, key: str) -> None:
        """Remove a request, if it is there."""
        request = self._by_key.pop(key, None)
        if request is None:
            return
        self._stop_waiting(key)
        for index, group, _ in self._groups(request):
            _discard(index, group, key)

    def take_answer(self, key: str, awaited: str, bound: JsonObject) -> None:
        """Note what the waiting request `key` got from the answer of `awaited`."""
        waiting = self._waiting[key]
        waiting.left.pop(awaited, None)
        waiting.bound.update(bound)
        _discard(self._waiters, (awaited,), key)

    def count_answer(self, key: str, size: int) -> int:
        """Count an answer that is kept for the waiting request `key`; return the bytes of all of them."""
        waiting = self._waiting[key]
        waiting.answers += 1
        waiting.answer_bytes += size
        return waiting.answer_bytes

    def _stop_waiting(self, key: str) -> None:
        waiting = self._waiting.pop(key, None)
        for awaited in waiting.left if waiting is not None else ():
            _discard(self._waiters, (awaited,), key)

    def _groups(self, request: Request) -> list[_Place]:
        """Return where a request is found: index, group, and what orders the group."""
        groups: list[_Place] = [(self._by_place, (request.frame, name), _number) for name in request.provides]
        if request.domain is not None:
            groups.append((self._by_domain, (request.domain,), _turn))
        if request.frame:
            loops = [frame[: frame.rindex("[") + 1] for frame in entries.outward(request.frame)[:-1]]
            groups += [(self._in_loop, (loop,), _number) for loop in loops]
        return groups

    def _insert(
        self, index: dict[Group, _Keys], group: Group, request: Request, order: Callable[[Request], int]
    ) -> None:
        keys = index.get(group)
        if keys is None:
            index[group] = {request.key: None}
            return
        last = next(reversed(keys))
        keys[request.key] = None
        if order(self._by_key[last]) > order(request):
            in_order = sorted(keys, key=lambda key: order(self._by_key[key]))
            keys.clear()
            keys.update(dict.fromkeys(in_order))

    # -- finding them

    def latest(self, frame: str, name: str) -> Request | None:
        """Return the latest request that will give `name` in exactly this frame."""
        for key in reversed(self._by_place.get((frame, name), _NONE)):
            if not self._by_key[key].superseded:
                return self._by_key[key]
        return None

    def giving(self, frame: str, name: str, *, before: int | None = None) -> list[Request]:
        """Return the requests that give `name` in exactly this frame, or those of them numbered `before` another."""
        keys = self._by_place.get((frame, name))
        if keys is None:
            return []
        requests = (self._by_key[key] for key in keys)
        return list(requests if before is None else takewhile(lambda request: request.number < before, requests))

    def first_in(self, domain: str) -> Request | None:
        """Return the request whose turn it is at an address or in a namespace."""
        key = next(iter(self._by_domain.get((domain,), _NONE)), None)
        return None if key is None else self._by_key[key]

    def in_domain(self, domain: str) -> list[str]:
        """Return the keys of the requests at an address or in a namespace, in their order."""
        return list(self._by_domain.get((domain,), _NONE))

    def in_loop(self, loop_frames: str) -> list[str]:
        """Return the keys of the requests in all iterations of a loop, and in the loops within them."""
        return list(self._in_loop.get((loop_frames,), _NONE))

    def waiting_for(self, awaited: str) -> list[Request]:
        """Return the requests that wait for `awaited`."""
        keys = self._waiters.get((awaited,))
        return [] if keys is None else sorted([self._by_key[key] for key in keys], key=_number)

    def waiting(self, key: str) -> Waiting | None:
        """Return what a request still waits for; None when it never had to wait for an answer."""
        return self._waiting.get(key)

    def may_run(self, request: Request) -> bool:
        """Tell whether everything is answered that the request waited for, and it is its turn."""
        waiting = self._waiting.get(request.key)
        if waiting is not None and waiting.left:
            return False
        return request.domain is None or next(iter(self._by_domain[request.domain,])) == request.key


def _number(request: Request) -> int:
    return request.number


def _turn(request: Request) -> int:
    return request.turn


def _discard(index: dict[Group, _Keys], group: Group, key: str) -> None:
    keys = index[group]
    keys.pop(key, None)
    if not keys:
        del index[group]
