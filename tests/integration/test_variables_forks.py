"""Forks: they begin with exactly the first revisions of another execution, whatever becomes of that one."""

from schemas.envelope import Event
from tests.support.edge import Edge, assert_table_is_right_or_behind, completed, event, started
from topics.catalog import Topic
from workers.logic.variables.state import ExecutionKey
from workers.runtime.postgres import Database
from workers.variables import history
from workers.variables.history import RevisionDetail
from workers.variables.retention import delete_finished


def fork(execution_id: str, source: str, revision: int) -> Event:
    return started(execution_id, forked_from={"execution_id": source, "revision": revision})


async def entries_of(variables: Edge, execution_id: str, revision: int | None = None) -> dict[str, bytes] | None:
    async with Database.from_settings(variables.settings, "test") as database, database.session() as connection:
        store = await history.store_at(connection, ExecutionKey("default", execution_id), revision)
    return None if store is None else dict(store.entries)


async def revisions_of(variables: Edge, execution_id: str) -> list[RevisionDetail]:
    async with Database.from_settings(variables.settings, "test") as database, database.session() as connection:
        return await history.revisions(connection, ExecutionKey("default", execution_id))


def causes(revisions: list[RevisionDetail]) -> list[tuple[int, str, bool]]:
    found = []
    for revision in revisions:
        cause = revision.body["cause"]
        assert isinstance(cause, dict)
        found.append((revision.revision, str(cause["id"]), revision.event_key is None))
    return found


async def test_a_fork_has_its_sources_first_revisions_and_goes_on_after_them(variables: Edge) -> None:
    waiting = event("source", "activity.scheduled", {"activity_id": "three", "inputs": {"x": "{{nobody}}"}})
    source = [started("source"), completed("source", "one", value=1), waiting, completed("source", "two", value=2)]
    await variables.start_worker()
    await variables.publish([*source, event("source", "execution.cancelled", {})])
    await variables.drained()
    await variables.publish([fork("fork", "source", 3), completed("fork", "own", value=3)])
    await variables.drained()
    await variables.publish([fork("again", "fork", 5), completed("again", "one", value=4), fork("not", "source", 6)])
    await variables.drained()

    of_source, of_fork, of_both = [await revisions_of(variables, name) for name in ("source", "fork", "again")]
    assert causes(of_fork) == [
        (1, "source/execution.started/", True),
        (2, "source/activity.completed/one", True),
        (3, "source/activity.scheduled/", True),
        (4, "fork/execution.started/", False),
        (5, "fork/activity.completed/own", False),
    ]
    for mine, its in ((of_fork, of_source), (of_both, of_fork)):
        begin = [(r.body, r.changes, r.outgoing, r.applied_at) for r in mine if r.event_key is None]
        assert begin == [(r.body, r.changes, r.outgoing, r.applied_at) for r in its[: len(begin)]]
    assert [number for number, _, inherited in causes(of_both) if not inherited] == [6, 7]
    for revision in range(1, 4):
        assert await entries_of(variables, "again", revision) == await entries_of(variables, "source", revision)
    assert await entries_of(variables, "again", 5) == await entries_of(variables, "fork")

    store = await entries_of(variables, "again")
    assert store is not None
    assert {entry: store[entry] for entry in store if entry.startswith("v/") and entry != "v/system"} == {
        "v/input": b'{"amount":5}',
        "v/one": b'{"value":4}',
        "v/own": b'{"value":3}',
    }
    assert not [entry for entry in store if entry.startswith(("q/", "e"))]
    letters = [record.event.data["code"] for record in await variables.read(Topic.DEAD_LETTERS)]
    assert letters == ["fork_unknown"]


async def test_a_fork_outlives_its_source_and_a_restart(variables: Edge) -> None:
    worker = await variables.start_worker()
    await variables.publish([started("source"), completed("source", "one", value=1)])
    await variables.publish([event("source", "execution.completed", {})])
    await variables.drained()
    await variables.publish([fork("fork", "source", 3)])
    await variables.drained()
    await worker.kill()
    await variables.make_anew(Topic.EXECUTIONS_TABLE)
    async with Database.from_settings(variables.settings, "test") as database:
        async with database.session() as connection:
            await connection.execute(
                "UPDATE executions SET ended_at = now() - interval '91 days' WHERE ended_at < now()"
            )
        assert await delete_finished(database, 90) == 1

    await variables.start_worker()
    await variables.publish([fork("fork", "source", 3), completed("fork", "two", value=2), fork("late", "source", 3)])
    await variables.publish([event("fork", "execution.completed", {"output": "{{one.value}}"})])
    await variables.drained()

    assert [revision.revision for revision in await revisions_of(variables, "fork")] == [1, 2, 3, 4, 5, 6]
    store = await entries_of(variables, "fork")
    assert store is not None
    assert (store["v/one"], store["v/two"]) == (b'{"value":1}', b'{"value":2}')
    assert b'"output":1' in store["e"]
    assert [record.event.data["code"] for record in await variables.read(Topic.DEAD_LETTERS)] == ["fork_unknown"]
    assert await assert_table_is_right_or_behind(variables) == 1


async def test_an_output_that_overtakes_a_forks_start_is_kept_before_what_the_fork_inherits(variables: Edge) -> None:
    await variables.publish([started("source"), completed("source", "one", value=1)])
    worker = await variables.start_worker(batch_size="1")
    await variables.drained()
    early = [completed("fork", "one", value=2), completed("fork", "own", value=3)]
    await variables.publish([*early, fork("fork", "source", 2), completed("fork", "last", value=4)])
    await variables.drained()
    await worker.kill()

    assert causes(await revisions_of(variables, "fork")) == [
        (1, "fork/activity.completed/one", False),
        (2, "fork/activity.completed/own", False),
        (3, "source/execution.started/", True),
        (4, "source/activity.completed/one", True),
        (5, "fork/execution.started/", False),
        (6, "fork/activity.completed/last", False),
    ]
    assert await assert_table_is_right_or_behind(variables) == 2
    published = [record.event for record in await variables.read(Topic.VARIABLE_UPDATES)]
    assert [said.data["revision"] for said in published if said.subject == "fork"] == [1, 2, 5, 6]
