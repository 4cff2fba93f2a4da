"""The pure parts of a batch: intake, positions, decisions."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.envelope import Event
from schemas.identity import content_digest, key_of
from schemas.limits import DEFAULT_LIMITS
from tests.support.edge import completed, event, outcome, started
from topics.catalog import Topic
from topics.codec import decode, encode
from topics.keys import partition_of
from topics.records import ReceivedRecord
from workers.logic.variables.state import ExecutionKey, ExecutionState
from workers.logic.variables.step import ForkSource
from workers.variables.decision import Decision, Facts, decide, head_rows
from workers.variables.driver import Assignor
from workers.variables.intake import Arrival, take_in
from workers.variables.parts import before_fork, positions_after
from workers.variables.rows import decode_changes, decode_outgoing, encode_changes, encode_outgoing
from workers.variables.store import Inheritance, Known, Refusal

PARTITIONS = 4
NOW = datetime(2026, 11, 30, tzinfo=UTC)


def received(
    found: Event, offset: int = 0, topic: Topic = Topic.EXECUTION_EVENTS, partition: int | None = None
) -> ReceivedRecord:
    subject = (found.subject or "").encode()
    place = partition_of(subject, PARTITIONS) if partition is None else partition
    return ReceivedRecord(topic, place, offset, subject, encode(found))


def arrivals(*events: Event) -> list[Arrival]:
    return take_in([received(found, offset) for offset, found in enumerate(events)], PARTITIONS).arrivals


def facts(*known: Known, refused: tuple[Refusal, ...] = ()) -> Facts:
    class States(dict[ExecutionKey, ExecutionState]):
        def __missing__(self, key: ExecutionKey) -> ExecutionState:
            self[key] = ExecutionState.load(key, None, {})
            return self[key]

    return Facts(
        now=NOW,
        limits=DEFAULT_LIMITS,
        known={each.key: each for each in known},
        refused={(each.record.topic, each.record.partition, each.record.offset): each for each in refused},
        states=States(),
        forks={},
    )


def stored(decision: Decision) -> list[Known]:
    return [
        Known(row.event_key, row.digest, row.execution, row.revision, row.body, row.changes, row.outgoing)
        for row in decision.revisions
    ]


# -- intake


def test_an_event_in_its_place_is_an_arrival() -> None:
    [arrival] = arrivals(started("run"))

    assert arrival.execution == ExecutionKey("default", "run")
    assert (arrival.key, arrival.digest) == (key_of(arrival.event), content_digest(arrival.event))


def test_a_misplaced_event_is_forwarded_as_it_came() -> None:
    wrong = (partition_of(b"run", PARTITIONS) + 1) % PARTITIONS
    record = received(started("run"), partition=wrong)

    intake = take_in([record], PARTITIONS)

    assert intake.arrivals == []
    [forward] = intake.forwards
    assert (forward.topic, forward.key, forward.value) == (record.topic, b"run", record.value)
    assert forward.partition == partition_of(b"run", PARTITIONS)


@pytest.mark.parametrize(
    ("found", "topic", "code"),
    [
        (event("run", "no.such.type", {}), Topic.EXECUTION_EVENTS, "unknown_type"),
        (event("run", "execution.started", {"workflow": 3}), Topic.EXECUTION_EVENTS, "data_invalid"),
        (event("run", "memory.written", {}), Topic.EXECUTION_EVENTS, "unknown_type"),
        (event("run", "variables.revised", {}), Topic.ACTIVITY_OUTPUTS, "unknown_type"),
        (Event(id="1", source="/s", type="memory.read", data={}), Topic.EXECUTION_EVENTS, "subject_required"),
    ],
)
def test_what_cannot_be_accepted_is_a_dead_letter(found: Event, topic: Topic, code: str) -> None:
    intake = take_in([received(found, topic=topic)], PARTITIONS)

    assert [letter for letter, _ in intake.letters] == [code]


def test_only_outcomes_of_our_own_commands_are_taken_in() -> None:
    ours = outcome(event("run", "memory.read", {}), "memory.missing", version=0)
    theirs = outcome(event("run", "memory.read", {}), "memory.missing", version=0)
    theirs.data["command_source"] = "/client"

    intake = take_in([received(each, topic=Topic.MEMORY_RESULTS) for each in (ours, theirs)], PARTITIONS)

    assert [arrival.event for arrival in intake.arrivals] == [ours]
    assert intake.unasked == 1


def test_an_outcome_of_ours_in_another_partition_is_forwarded_to_its_own() -> None:
    ours = outcome(event("run", "memory.read", {}), "memory.missing", version=0)
    place = partition_of(b"run", PARTITIONS)
    elsewhere = (place + 1) % PARTITIONS

    intake = take_in([received(ours, topic=Topic.MEMORY_RESULTS, partition=elsewhere)], PARTITIONS)

    assert not intake.arrivals
    [forward] = intake.forwards
    assert (forward.topic, forward.key, forward.partition) == (Topic.MEMORY_RESULTS, b"run", place)


# -- positions


@given(
    stored=st.integers(0, 20),
    offsets=st.sets(st.integers(0, 30), min_size=1),
)
def test_positions_never_go_back_and_gaps_hold_nothing_up(stored: int, offsets: set[int]) -> None:
    records = [ReceivedRecord(Topic.EXECUTION_EVENTS, 0, offset, b"", b"") for offset in sorted(offsets)]

    positions, behind = positions_after(records, {(Topic.EXECUTION_EVENTS, 0): stored})

    assert positions == {(Topic.EXECUTION_EVENTS, 0): max(stored, max(offsets) + 1)}
    assert {record.offset for record in behind} == {offset for offset in offsets if offset < stored}


# -- decisions


def test_a_known_event_is_answered_with_what_was_stored() -> None:
    events = arrivals(started("run"), completed("run", "one", value=1))
    first = decide(events, facts())

    again = decide(events, facts(*stored(first)))

    assert again.revisions == []
    assert again.outgoing() == first.outgoing()


def test_replays_go_out_in_the_order_of_their_revisions() -> None:
    events = arrivals(started("run"), completed("run", "one", value=1), completed("run", "two", value=2))
    first = decide(events, facts())

    again = decide(list(reversed(events)), facts(*stored(first)))

    assert again.outgoing() == first.outgoing()


def test_one_event_twice_in_a_batch_is_applied_once() -> None:
    decision = decide(arrivals(started("run"), started("run")), facts())

    assert [row.revision for row in decision.revisions] == [1]
    assert decision.letters == []


def test_one_id_with_two_contents_is_refused_within_a_batch_and_across() -> None:
    [one, other] = arrivals(completed("run", "one", value=1), completed("run", "one", value=2))

    within = decide([one, other], facts())
    across = decide([other], facts(*stored(decide([one], facts()))))

    assert [code for code, _ in within.letters] == ["id_reused"]
    assert [code for code, _ in across.letters] == ["id_reused"]


def test_a_refusal_is_repeated_from_its_row_whatever_the_state_is_by_then() -> None:
    [arrival] = arrivals(started("run"))
    refusal = Refusal(arrival.record, "already_started", "was started before")

    decision = decide([arrival], facts(refused=(refusal,)))

    assert decision.revisions == []
    assert [code for code, _ in decision.letters] == ["already_started"]
    assert decision.refusals == []


def test_a_refused_event_leaves_no_trace_in_the_store() -> None:
    again = event("run", "execution.started", {"workflow": {"name": "other"}, "input": {}}, "again")
    decision = decide(arrivals(started("run"), again, completed("run", "one", value=1)), facts())

    assert [row.revision for row in decision.revisions] == [1, 2]
    assert [refusal.code for refusal in decision.refusals] == ["already_started"]


def test_every_revision_says_itself_before_what_it_caused() -> None:
    decision = decide(arrivals(started("run"), event("run", "execution.completed", {})), facts())

    types = [decode(record.value).type for record in decision.outgoing()]
    assert types == ["variables.revised", "variables.revised", "execution.finalized"]


def test_a_batch_is_cut_where_a_run_forks_from_one_that_it_changes() -> None:
    fork = started("fork", forked_from={"execution_id": "run", "revision": 1})
    other = started("other", forked_from={"execution_id": "elsewhere", "revision": 1})
    events = arrivals(started("run"), other, fork, completed("run", "one"))

    assert (before_fork(events), before_fork(events[2:])) == (2, 2)


def test_a_fork_inherits_its_sources_revisions_after_what_came_early_for_itself() -> None:
    early, fork = arrivals(completed("fork", "a"), started("fork", forked_from={"execution_id": "run", "revision": 3}))
    given = facts()
    found = replace(given, forks={fork.key: ForkSource({}, found=True)})
    decision = decide([early, fork], found)

    assert decision.inherited == [Inheritance(fork.execution, "run", 3, 1)]
    assert [row.revision for row in decision.revisions] == [1, 5]
    [head] = head_rows(decision, found.states, {})
    assert (head.revision, head.unpublished_from) == (5, 1)


# -- rows


@given(
    st.dictionaries(
        st.text(max_size=5), st.none() | st.sampled_from([b"1.00", b'"\\u0000"', b"12345678901234567890", b"[1e5]"])
    )
)
def test_changes_keep_their_bytes(changes: dict[str, bytes | None]) -> None:
    assert dict(decode_changes(encode_changes(changes))) == changes


def test_stored_events_keep_their_bytes() -> None:
    decision = decide(
        arrivals(
            started("run"),
            event("run", "activity.scheduled", {"activity_id": "a", "inputs": {"n": "{{input.amount}}"}}),
        ),
        facts(),
    )
    records = [record for record in decision.fresh if record.topic is Topic.NODE_RESULTS]

    assert records
    assert decode_outgoing(encode_outgoing(records)) == records


# -- the driver


def test_topics_are_assigned_together_whatever_order_their_members_came_in() -> None:
    members = {f"member-{number}": ["a", "b", "c"] for number in range(50)}

    groups = list(Assignor._group_co_subscribed({"a", "b", "c"}, members))

    assert groups == [{"a", "b", "c"}]
