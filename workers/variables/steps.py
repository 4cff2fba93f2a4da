"""What the steps of a batch hand on: what was read, what was committed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from topics.records import ReceivedRecord
from workers.logic.variables.state import ExecutionKey, ExecutionState
from workers.variables.decision import Decision, Facts
from workers.variables.intake import Arrival
from workers.variables.store import Head, Known, Lane
from workers.variables.table import LiveExecution


@dataclass(frozen=True, slots=True)
class Loaded:
    """An execution of a batch: its live store (fresh from PostgreSQL when `rebuilt`) and a working copy over it."""

    partition: int
    live: LiveExecution
    state: ExecutionState
    rebuilt: bool

    def afresh(self, key: ExecutionKey) -> "Loaded":
        """Return the same store with a working copy that nothing was decided on."""
        return replace(self, state=ExecutionState.load(key, self.live.head or None, self.live.entries))


@dataclass(slots=True)
class Committed:
    """What a transaction left to do."""

    decision: Decision
    loaded: Mapping[ExecutionKey, Loaded]
    behind: int
    #: Executions that were taken over: with this batch they are published up to here.
    taken: Mapping[ExecutionKey, int]
    #: The revisions of it from which on nothing was published yet.
    since: Mapping[ExecutionKey, int]
    #: What is to be decided after it.
    left: Sequence[Arrival]


@dataclass(slots=True)
class Read:
    """What the first step found for `arrivals`; of those `left` too much is stored to be read as well.

    `stored` are the positions that were found, `behind` the records before them.
    """

    arrivals: Sequence[Arrival]
    left: Sequence[Arrival]
    stored: dict[Lane, int]
    behind: list[ReceivedRecord]
    facts: Facts
    loaded: dict[ExecutionKey, Loaded] = field(default_factory=dict)
    unused: set[ExecutionKey] = field(default_factory=set)
    #: What the owner before us may not have published: from which revision on, and the revisions.
    heads: dict[ExecutionKey, Head] = field(default_factory=dict)
    taken: dict[ExecutionKey, int] = field(default_factory=dict)
    unpublished: dict[UUID, Known] = field(default_factory=dict)
