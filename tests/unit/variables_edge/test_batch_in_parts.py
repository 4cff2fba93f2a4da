"""Batches that are cut: by what they write, by what is read to send it again, and where an event goes on."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from schemas.envelope import Event
from schemas.identity import key_of
from schemas.limits import DEFAULT_LIMITS, Limits
from tests.support.edge import completed, event, started
from tests.unit.variables_edge.test_batch import NOW, arrivals, stored
from topics.records import Record
from workers.logic.variables.state import ExecutionKey, ExecutionState
from workers.variables.decision import Decision, Facts, decide
from workers.variables.intake import Arrival
from workers.variables.parts import fitting, positions_after, records_before
from workers.variables.rows import apply_changes
from workers.variables.store import Known, Size

RUN = ExecutionKey("default", "run")


class Worker:
    """What a worker does with a batch, on the rows that it has written so far; `kills` are the commits it survives."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self.rows: dict[UUID, Known] = {}
        self.heads: dict[ExecutionKey, bytes] = {}
        self.entries: dict[ExecutionKey, dict[str, bytes]] = {}
        self.commits: list[Decision] = []

    def take(self, batch: Sequence[Arrival], commits: int = 1000) -> list[Record]:
        """Decide a batch, until it is done or the worker is killed after so many commits; return what went out."""
        left, sent = batch, list[Record]()
        while left and commits:
            decision = self._decide(left)
            sent += decision.outgoing()
            left, commits = decision.left, commits - 1
        return sent

    def _decide(self, batch: Sequence[Arrival]) -> Decision:
        keys = {arrival.execution for arrival in batch}
        states = {key: ExecutionState.load(key, self.heads.get(key), self.entries.setdefault(key, {})) for key in keys}
        decision = decide(batch, Facts(NOW, self.limits, dict(self.rows), {}, states, {}))
        self.rows |= {row.key: row for row in stored(decision)}
        for key, changes in decision.changes.items():
            self.heads[key] = states[key].head
            apply_changes(self.entries[key], changes.items())
        self.commits.append(decision)
        return decision


def many_waiting(count: int = 30) -> list[Event]:
    waiting = [
        event("run", "activity.scheduled", {"activity_id": f"a{number}", "inputs": {"t": "{{big.text}}"}}, str(number))
        for number in range(count)
    ]
    return [started("run"), event("run", "activity.scheduled", {"activity_id": "big", "inputs": {}}), *waiting]


BIG = completed("run", "big", text="x" * 1000)
AFTER = event("run", "activity.completed", {"activity_id": "big", "output": {"text": "later"}}, "later")
LIMITS = replace(DEFAULT_LIMITS, step_bytes=5000, batch_bytes=5000)


def sets_free(*more: Event) -> list[Arrival]:
    return arrivals(*many_waiting(), BIG, *more)


def answers(records: Sequence[Record]) -> list[bytes | None]:
    return list(dict.fromkeys(record.value for record in records if record.topic.value == "node-results"))


def test_a_batch_is_cut_where_it_is_enough_to_write_and_loses_nothing() -> None:
    batch = arrivals(started("run"), *(completed("run", f"n{number}", text="x" * 1500) for number in range(20)))
    whole, cut = Worker(), Worker(LIMITS)

    assert cut.take(batch) == whole.take(batch)
    assert len(whole.commits) == 1
    assert len(cut.commits) > 5
    assert all(decision.size < 5000 + 4000 for decision in cut.commits)


def test_what_an_event_sets_free_is_answered_before_the_next_event_of_the_run() -> None:
    whole, cut = Worker(), Worker(LIMITS)
    batch = sets_free(AFTER)

    assert answers(cut.take(batch)) == answers(whole.take(batch))
    assert len(answers(cut.take(batch))) == 31
    assert len(cut.commits) > 5
    assert cut.entries == whole.entries


@given(st.integers(1, 12), st.integers(1, 12), st.booleans())
def test_a_worker_killed_between_parts_leaves_the_rest_to_the_next_delivery(
    first: int, second: int, other_event_first: bool
) -> None:
    batch = sets_free(AFTER)
    whole, killed = Worker(), Worker(LIMITS)
    due = answers(whole.take(batch))

    sent = killed.take(batch, commits=first)
    # Between topics there is no order: what comes first after a kill may be another event of the run.
    overtakes = other_event_first and key_of(BIG) in killed.rows
    again = [batch[-1], *batch[:-1]] if overtakes else batch
    sent += killed.take(again, commits=second)
    sent += killed.take(again)

    assert sorted(filter(None, answers(sent))) == sorted(filter(None, due))
    rows = sorted(killed.rows.values(), key=lambda row: row.revision)
    assert [row.revision for row in rows] == list(range(1, len(rows) + 1))


def test_an_event_that_comes_again_sends_all_its_parts_again() -> None:
    worker = Worker(LIMITS)
    first = answers(worker.take(sets_free()))

    again = worker.take(sets_free()[-1:])

    assert answers(again) == first[1:]
    assert not any(decision.revisions for decision in worker.commits[-3:])


def test_the_rest_of_an_event_that_was_refused_in_part_goes_on_too() -> None:
    worker = Worker(LIMITS)
    too_large = completed("run", "big", text="x" * (DEFAULT_LIMITS.output_bytes + 1))
    batch = arrivals(*many_waiting(80), too_large)

    assert len(answers(worker.take(batch))) == 82
    assert [code for decision in worker.commits for code, _ in decision.letters] == ["output_too_large"]
    assert sum(len(decision.revisions) for decision in worker.commits) > 84


# -- what is read


@given(st.lists(st.integers(0, 100), min_size=1), st.integers(1, 300), st.integers(0, 300))
def test_no_more_is_read_again_than_fits_beside_the_last_of_it(sizes: list[int], most: int, unpublished: int) -> None:
    batch = arrivals(*(completed("run", f"n{number}") for number in range(len(sizes))))
    known = {arrival.key: Size(RUN, 1, size) for arrival, size in zip(batch, sizes, strict=True)}

    count = fitting(batch, known, {RUN: unpublished}, most)

    assert count >= 1
    assert count == 1 or sum(sizes[: count - 1]) + unpublished < most
    assert count == len(sizes) or sum(sizes[:count]) + unpublished >= most


@given(st.data())
def test_positions_do_not_pass_what_is_left(data: st.DataObject) -> None:
    batch = arrivals(started("run"), *(completed("run", f"n{number}") for number in range(5)))
    records = [arrival.record for arrival in batch]
    done = data.draw(st.integers(0, len(batch)))

    positions, _ = positions_after(records_before(records, batch[done:]), {(records[0].topic, records[0].partition): 0})

    assert list(positions.values()) == ([done] if done else [])
