"""What the owner before us may have committed and not published: it goes out before anything newer.

A worker is killed between its commit and its publication; the records of that batch come again to the next owner. But
they come by topic: the outcome that made revision 27 may come after an event that makes revision 28. So the row of an
execution says where its last batch began. Whoever meets it first publishes from there, and then notes that all is
published: else two workers that answer each other's copies would never come to rest.
"""

from collections.abc import Collection, Iterable, Mapping

from workers.logic.variables.state import ExecutionKey, ExecutionState
from workers.variables.store import Head, RevisionRow, Size


def taken_over(
    heads: Mapping[ExecutionKey, Head],
    ours: Collection[ExecutionKey],
    undecided: Iterable[ExecutionKey],
    known: Iterable[Size],
) -> dict[ExecutionKey, int]:
    """Return, for executions of which this batch publishes something, the revision to publish from.

    `ours` are those whose last batch this worker has published itself. Of `known` events that lie before the last
    batch nothing is due: everything up to them was published.
    """
    touched = set(undecided)
    touched |= {
        each.execution
        for each in known
        if each.execution in heads and each.revision >= heads[each.execution].unpublished_from
    }
    return {key: heads[key].unpublished_from for key in touched if key not in ours and heads[key].data is not None}


def unpublished_from(
    revisions: Iterable[RevisionRow], executions: Iterable[ExecutionKey], taken: Mapping[ExecutionKey, int]
) -> dict[ExecutionKey, int]:
    """Return where the batch that is written now, in order, begins for each of its executions.

    What is taken over is not published yet either: it stays due until this batch is.
    """
    first: dict[ExecutionKey, int] = {}
    for row in revisions:
        first.setdefault(row.execution, row.revision)
    return {key: taken.get(key, first[key]) for key in executions}


def newest(
    taken: Iterable[ExecutionKey], heads: Mapping[ExecutionKey, Head], states: Mapping[ExecutionKey, ExecutionState]
) -> dict[ExecutionKey, int]:
    """Return the revisions of executions that were taken over, after the batch: all of them will be published."""
    return {key: states[key].revision if key in states else heads[key].revision for key in taken}
