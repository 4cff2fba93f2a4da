"""The table believes a changelog only when it adds up."""

from collections.abc import Iterator
from contextlib import contextmanager

import faust
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from topics.records import Record
from workers.logic.variables.state import ExecutionKey
from workers.variables.table import ExecutionTable, LiveExecution, recover

KEY = ExecutionKey("default", "run")
ENTRIES = st.dictionaries(
    st.sampled_from(["v/a", "v/b", "v/c", "r/1"]), st.one_of(st.none(), st.binary(min_size=1, max_size=4))
)


@contextmanager
def table() -> Iterator[ExecutionTable]:
    yield ExecutionTable(faust.App("test", store="memory://"), name="executions", key_type=bytes, value_type=bytes)


def revise(table: ExecutionTable, live: LiveExecution, changes: dict[str, bytes | None]) -> list[Record]:
    live.revision += 1
    live.head = b"{}"
    return table.change(0, KEY, live, changes)


def recovered(records: list[Record]) -> dict[ExecutionKey, LiveExecution]:
    executions: dict[ExecutionKey, LiveExecution] = {}
    for record in records:
        assert record.key is not None
        recover(executions, record.key, record.value)
    return executions


@given(history=st.lists(ENTRIES, min_size=1, max_size=8))
def test_the_changelog_gives_the_store_back(history: list[dict[str, bytes | None]]) -> None:
    with table() as executions:
        live = LiveExecution.rebuilt(0, b"", {})
        records = [record for changes in history for record in revise(executions, live, changes)]

    found = recovered(records)[KEY]
    assert found.is_whole()
    assert (found.revision, found.entries, found.head) == (len(history), live.entries, b"{}")


@given(history=st.lists(ENTRIES, min_size=2, max_size=8), lost=st.integers(0, 100))
def test_a_lost_record_is_noticed_or_did_not_matter(history: list[dict[str, bytes | None]], lost: int) -> None:
    with table() as executions:
        live = LiveExecution.rebuilt(0, b"", {})
        records = [record for changes in history for record in revise(executions, live, changes)]
    del records[lost % (len(records) - 1)]

    found = recovered(records)[KEY]
    assert found.entries == live.entries or not found.is_whole()


def test_a_zombies_late_write_is_noticed() -> None:
    with table() as executions:
        live = LiveExecution.rebuilt(0, b"", {})
        fifth = revise(executions, live, {"v/x": b"5", "v/y": b"5"})
        sixth = revise(executions, live, {"v/x": b"6"})

    # The owner's entry, the zombie's batch, the owner's head.
    found = recovered([*fifth, sixth[0], *fifth, sixth[1]])[KEY]

    assert found.revision == 2
    assert not found.is_whole()


def test_values_that_changed_places_are_noticed() -> None:
    with table() as executions:
        records = revise(executions, LiveExecution.rebuilt(0, b"", {}), {"v/x": b"1", "v/y": b"2"})
    x, y, head = records

    found = recovered([replace(x, value=y.value), replace(y, value=x.value), head])[KEY]

    assert not found.is_whole()


def test_the_head_is_written_last() -> None:
    with table() as executions:
        records = revise(executions, LiveExecution.rebuilt(0, b"", {}), {"v/x": b"1"})

    assert [record.key for record in records] == [b"default\0run\0v/x", b"default\0run\0"]


def test_a_rebuilt_execution_replaces_what_the_table_held() -> None:
    with table() as executions:
        stale = LiveExecution.rebuilt(0, b"", {})
        records = revise(executions, stale, {"v/old": b"1", "v/x": b"1"})
        rebuilt = LiveExecution.rebuilt(3, b"{}", {"v/x": b"2"})
        records += executions.adopt(0, KEY, rebuilt, {"v/new": b"3"})

    found = recovered(records)[KEY]
    assert found.is_whole()
    assert found.entries == {"v/x": b"2", "v/new": b"3"}


def test_ended_executions_leave_after_their_grace() -> None:
    with table() as executions:
        ended = LiveExecution(revision=0, used_at=10.0, ended=True)
        records = revise(executions, ended, {"v/x": b"1"})
        executions.change(0, ExecutionKey("default", "running"), LiveExecution(revision=1, used_at=10.0), {})

        assert executions.evict(before=10.0) == []
        records += executions.evict(before=10.1)

        assert len(executions) == 1
    assert recovered(records) == {}


@pytest.mark.parametrize("kept", [{0}, {1}, set()])
async def test_partitions_that_move_away_are_dropped(kept: set[int]) -> None:
    with table() as executions:
        for partition in (0, 1):
            executions.change(partition, KEY, LiveExecution(revision=1), {"v/x": b"1"})
        topic = executions.changelog_topic_name

        await executions.on_rebalance({faust.types.TP(topic, partition) for partition in kept}, set(), set())

        assert set(executions.partitions_held) == kept
