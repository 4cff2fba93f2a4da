"""The fast checker and the exhaustive search agree on every small history."""

from math import inf
from random import Random
from time import perf_counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.checker.exhaustive import is_linearizable
from tests.support.checker.linearizability import NOTHING, UNKNOWN, Kind, Operation, violation_of


def random_history(random: Random, count: int, overlap: float) -> list[Operation]:
    """Return operations that took effect one after another, each reported with an interval around that moment."""
    operations: list[Operation] = []
    version, live = 0, False
    for moment in range(count):
        invoked = moment - random.random() * overlap
        returned = moment + random.random() * overlap
        name = f"{moment}"
        choice = random.random()
        if choice < 0.4:
            replaced = random.choice([UNKNOWN, version if live else NOTHING])
            version, live = version + 1, True
            operations.append(Operation(name, Kind.WRITE, invoked, returned, version, replaced))
        elif choice < 0.55 and live:
            live = False
            by_time = random.random() < 0.4
            named = version if by_time or random.random() < 0.5 else UNKNOWN
            operations.append(Operation(name, Kind.REMOVE, invoked, inf if by_time else returned, named))
        else:
            operations.append(Operation(name, Kind.OBSERVE, invoked, returned, version if live else NOTHING))
    random.shuffle(operations)
    return operations


def damaged(random: Random, operations: list[Operation]) -> list[Operation]:
    """Change one thing that somebody reported; the chain of versions stays whole."""
    damaged = list(operations)
    place = random.randrange(len(damaged))
    operation = damaged[place]
    top = max((each.version for each in operations if each.kind is Kind.WRITE), default=0)
    match operation.kind:
        case Kind.WRITE:
            change = operation._replace(replaced=random.choice([NOTHING, operation.version - 1]))
        case Kind.OBSERVE:
            change = operation._replace(version=random.randint(0, top))
        case Kind.REMOVE:
            change = operation._replace(version=random.randint(1, max(1, top)))
    shift = random.choice([0, 0, -3, 3])
    damaged[place] = change._replace(invoked=change.invoked + shift, returned=change.returned + shift)
    return damaged


@given(st.integers(0, 2**32), st.integers(1, 9), st.sampled_from([0.3, 1.0, 2.5, 5.0]))
@settings(max_examples=400, deadline=None)
def test_histories_that_happened_are_linearizable(seed, count, overlap):
    operations = random_history(Random(seed), count, overlap)

    assert is_linearizable(operations)
    assert violation_of(operations) is None


@given(st.integers(0, 2**32), st.integers(2, 9), st.sampled_from([0.3, 1.0, 2.5, 5.0]))
@settings(max_examples=1500, deadline=None)
def test_the_fast_checker_agrees_with_the_exhaustive_search(seed, count, overlap):
    random = Random(seed)
    operations = damaged(random, random_history(random, count, overlap))

    assert (violation_of(operations) is None) == is_linearizable(operations)


def test_both_find_most_damage():
    found = 0
    for seed in range(300):
        random = Random(seed)
        operations = damaged(random, random_history(random, 12, 0.6))
        linearizable = is_linearizable(operations)
        assert (violation_of(operations) is None) == linearizable
        found += not linearizable

    assert found > 60


def test_a_stale_read_is_named():
    operations = [
        Operation("first", Kind.WRITE, 0, 1, 1),
        Operation("second", Kind.WRITE, 2, 3, 2),
        Operation("read", Kind.OBSERVE, 4, 5, 1),
    ]

    complaint = violation_of(operations)

    assert complaint is not None
    assert "read saw version 1" in complaint
    assert "the item had version 2" in complaint


def test_a_conditional_write_on_a_stale_version_is_found():
    operations = [
        Operation("first", Kind.WRITE, 0, 1, 1),
        Operation("second", Kind.WRITE, 2, 3, 2, replaced=1),
        Operation("stale", Kind.WRITE, 4, 5, 3, replaced=1),
    ]

    assert violation_of(operations) is not None


def test_twenty_thousand_operations_take_seconds():
    operations = random_history(Random(5), 20_000, 16.0)
    began = perf_counter()

    assert violation_of(operations) is None
    assert perf_counter() - began < 20
