"""What each applied event changed (`variables.revised`)."""

from schemas.data import Count, Iteration, Json, Outbound, Revision


class VariableRead(Outbound):
    """One path that was looked up; `fallback` when an earlier path of the same reference was null.

    `node_id` names the reader where it is another node than the revision's cause.
    """

    path: str
    found: bool
    fallback: bool = False
    node_id: str | None = None


class VariableWrite(Outbound):
    """One path that was set (`frame`: in that loop iteration); `removed`: it went away."""

    path: str
    frame: str | None = None
    value: Json = None
    removed: bool = False


class Cause(Outbound):
    """The event that made a revision; `part` counts from 2 where it set free too much for one revision."""

    id: str
    source: str
    type: str
    activity_id: str | None = None
    node_id: str | None = None
    iteration: Iteration | None = None
    part: Count = 1


class VariablesRevised(Outbound):
    """One revision: what was read, what was written. `late` marks those after the execution's end.

    Reads and writes beyond 1 MiB each are left out and counted: `tally execution show --at` has them all.
    """

    revision: Revision
    cause: Cause
    reads: list[VariableRead]
    writes: list[VariableWrite]
    late: bool = False
    more_reads: Count = 0
    more_writes: Count = 0
