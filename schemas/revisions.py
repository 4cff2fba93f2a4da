"""What each applied event changed (design 2.4, `variables.revised`)."""

from schemas.data import Iteration, Json, Outbound, Revision


class VariableRead(Outbound):
    """One reference that was looked up. `fallback` is the path that answered when the first one was null."""

    path: str
    found: bool
    fallback: str | None = None


class VariableWrite(Outbound):
    """One path that was set; a null `value` with `removed` means that it went away."""

    path: str
    value: Json = None
    removed: bool = False


class Cause(Outbound):
    """The event that made a revision."""

    id: str
    source: str
    type: str
    activity_id: str | None = None
    node_id: str | None = None
    iteration: Iteration | None = None


class VariablesRevised(Outbound):
    """One revision: what was read, what was written. `late` marks those after the execution's end."""

    revision: Revision
    cause: Cause
    reads: list[VariableRead]
    writes: list[VariableWrite]
    late: bool = False
