"""Is there an order of the operations on one item, each between its request and its outcome, that the rules allow?

An item begins with nothing; each write makes the next version; a removal (forget, or the end of its time) leaves
nothing until the next write, which goes on counting. Versions give the order of the writes (Gibbons and Korach,
"Testing shared memories", 1997), so only removals that nobody reported with a version are open. The search is
Lowe's just-in-time linearization ("Testing for linearizability", 2017): it decides at the outcome of each operation,
keeps every state that the item may be in, and is linear in practice, since there is hardly ever more than one.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import Enum
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

NOTHING = 0
UNKNOWN = -1
_MAX_STATES = 20_000


class Kind(Enum):
    """What an operation does to an item."""

    WRITE = "write"
    #: A read, a refused conditional command, a removal of nothing: they report the version that is there.
    OBSERVE = "observe"
    REMOVE = "remove"


class Operation(NamedTuple):
    """One operation. Times are seconds of one clock. A removal that never returns (the end of an item's time) need not
    happen, and names its version.

    `version` is the one that a write made, an observer saw (`NOTHING` where there was none), a removal removed
    (`UNKNOWN` if it did not say). `replaced` is the version that a write found: `NOTHING`, or `UNKNOWN`.
    """

    name: str
    kind: Kind
    invoked: float
    returned: float
    version: int
    replaced: int = UNKNOWN


class State(NamedTuple):
    """Where an item may be. `done` are operations that took effect and have not returned yet."""

    version: int
    live: bool
    done: frozenset[int]

    @property
    def seen(self) -> int:
        """The version that a reader sees."""
        return self.version if self.live else NOTHING

    def __str__(self) -> str:
        return f"version {self.version}" if self.live else f"nothing (after version {self.version})"


class TooManyStates(RuntimeError):  # noqa: N818 - says what happened
    """The history leaves so much open that the search was given up."""


def violation_of(operations: Sequence[Operation]) -> str | None:
    """Return None for a linearizable history, else what cannot be fitted in. Versions must be a chain without gaps."""
    return _Search(operations).run()


class _Search:
    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = operations
        self._writes: dict[int, int] = {}
        self._observers: defaultdict[int, set[int]] = defaultdict(set)
        self._removals: defaultdict[int, set[int]] = defaultdict(set)
        self._states = {State(0, live=False, done=frozenset())}

    def run(self) -> str | None:
        for _, is_return, index in self._moments():
            operation = self._operations[index]
            if not is_return:
                self._invoke(index, operation)
                continue
            found = self._after_return(index)
            if not found:
                return self._complaint(operation)
            self._states = found
            self._forget(index, operation)
        return None

    def _moments(self) -> Iterable[tuple[float, bool, int]]:
        """Give invocations and returns in order; at one time invocations come first: such operations overlap."""
        heap: list[tuple[float, bool, int]] = []
        for index, operation in enumerate(self._operations):
            heappush(heap, (operation.invoked, False, index))
            if operation.returned < inf:
                heappush(heap, (operation.returned, True, index))
        while heap:
            yield heappop(heap)

    def _invoke(self, index: int, operation: Operation) -> None:
        match operation.kind:
            case Kind.WRITE:
                self._writes[operation.version] = index
            case Kind.OBSERVE:
                self._observers[operation.version].add(index)
            case Kind.REMOVE:
                self._removals[operation.version].add(index)

    def _forget(self, index: int, operation: Operation) -> None:
        match operation.kind:
            case Kind.WRITE:
                del self._writes[operation.version]
            case Kind.OBSERVE:
                self._observers[operation.version].discard(index)
            case Kind.REMOVE:
                self._removals[operation.version].discard(index)

    def _after_return(self, index: int) -> set[State]:
        """Return the states in which the operation took effect at last."""
        found: set[State] = set()
        seen: set[State] = set()
        open_states = list(self._states)
        while open_states:
            state = self._with_observers(open_states.pop())
            if index in state.done:
                found.add(state._replace(done=state.done - {index}))
                continue
            if state in seen:
                continue
            seen.add(state)
            if len(seen) > _MAX_STATES:
                raise TooManyStates(f"more than {_MAX_STATES} states before {self._operations[index].name}")
            open_states += self._next_states(state)
        return found

    def _with_observers(self, state: State) -> State:
        """Let everybody look who waits to see just this: it changes nothing, and sooner is never worse."""
        pending = self._observers.get(state.seen)
        return state._replace(done=state.done | pending) if pending else state

    def _next_states(self, state: State) -> Iterable[State]:
        write = self._writes.get(state.version + 1)
        if write is not None and self._operations[write].replaced in (UNKNOWN, state.seen):
            yield State(state.version + 1, live=True, done=state.done | {write})
        if state.live:
            for removal in self._removals_of(state):
                # One that never returns names its version, which comes only once: no need to remember it.
                returns = self._operations[removal].returned < inf
                done = state.done | {removal} if returns else state.done
                yield State(state.version, live=False, done=done)

    def _removals_of(self, state: State) -> Iterable[int]:
        """Give the removals that name the version; of those that name none, the one that must return first."""
        yield from self._removals[state.version] - state.done
        unnamed = self._removals[UNKNOWN] - state.done
        if unnamed:
            yield min(unnamed, key=lambda index: (self._operations[index].returned, index))

    def _complaint(self, operation: Operation) -> str:
        states = " or ".join(sorted(str(state) for state in self._states))
        did = {
            Kind.WRITE: f"made version {operation.version}"
            + ("" if operation.replaced == UNKNOWN else f" in the place of {operation.replaced or 'nothing'}"),
            Kind.OBSERVE: f"saw version {operation.version}" if operation.version else "saw nothing",
            Kind.REMOVE: "removed "
            + ("what was there" if operation.version == UNKNOWN else f"version {operation.version}"),
        }[operation.kind]
        return (
            f"{operation.name} {did} between {operation.invoked:.4f} and {operation.returned:.4f}, "
            f"where no order allows it; until then the item had {states}"
        )
