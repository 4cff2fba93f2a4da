"""The oracle for the linearizability checker: Wing and Gong's search with Lowe's memory, for small histories only."""

from collections.abc import Sequence
from math import inf

from tests.support.checker.linearizability import NOTHING, UNKNOWN, Kind, Operation


def is_linearizable(operations: Sequence[Operation]) -> bool:
    """Try every order that the times allow."""
    required = frozenset(index for index, operation in enumerate(operations) if operation.returned < inf)
    tried: set[tuple[frozenset[int], int, bool]] = set()
    open_states = [(frozenset(range(len(operations))), 0, False)]
    while open_states:
        state = open_states.pop()
        remaining, version, live = state
        if not remaining & required:
            return True
        if state in tried:
            continue
        tried.add(state)
        deadline = min(operations[index].returned for index in remaining)
        for index in remaining:
            operation = operations[index]
            after = _after(operation, version, live=live)
            if operation.invoked <= deadline and after is not None:
                open_states.append((remaining - {index}, *after))
    return False


def _after(operation: Operation, version: int, *, live: bool) -> tuple[int, bool] | None:
    """Apply one operation; None where the rules forbid it."""
    seen = version if live else NOTHING
    match operation.kind:
        case Kind.WRITE if operation.version == version + 1 and operation.replaced in (UNKNOWN, seen):
            return version + 1, True
        case Kind.OBSERVE if operation.version == seen:
            return version, live
        case Kind.REMOVE if live and operation.version in (UNKNOWN, version):
            return version, False
    return None
