"""What is down is waited for, in place; nothing is lost, and readiness says so."""

import asyncio

import aiohttp

from tests.support.edge import Edge, assert_whole, completed, event, outcome, started
from tests.support.ports import free_port, readiness
from topics.catalog import Topic


async def until_ready(port: int) -> None:
    async with asyncio.timeout(60):
        while (await readiness(port))[0] != 200:
            await asyncio.sleep(0.1)


async def test_sessions_that_postgresql_ends_under_load_cost_retries_only(variables: Edge) -> None:
    events = []
    await variables.start_worker(batch_size="20")
    for number in range(40):
        events += [started(f"run-{number}"), *(completed(f"run-{number}", f"step-{step}") for step in range(5))]
        await variables.publish(events[-6:])
        async with variables.database() as connection:
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tally-variables'"
                " AND datname = current_database()"
            )
        await asyncio.sleep(0.05)
    await variables.drained()

    await assert_whole(variables, events)


async def test_without_postgresql_the_worker_waits_and_says_so(variables: Edge) -> None:
    port = free_port()
    worker = await variables.start_worker(
        postgres_dsn=f"postgresql://nobody:secret@127.0.0.1:{free_port()}/none", health_port=str(port)
    )

    status, report = await readiness(port)
    assert status == 503
    async with asyncio.timeout(30):
        while "PostgreSQL" not in report:
            status, report = await readiness(port)
    assert worker.process.returncode is None
    assert await worker.stop() == 0
    assert "secret" not in worker.lines() + report


async def test_without_kafka_the_worker_waits_and_says_so(variables: Edge) -> None:
    port = free_port()
    worker = await variables.start_worker(kafka_bootstrap_servers=f"127.0.0.1:{free_port()}", health_port=str(port))

    status, report = await readiness(port)
    assert status == 503
    async with asyncio.timeout(30):
        while "Kafka" not in report:
            status, report = await readiness(port)
    assert worker.process.returncode is None
    assert await worker.stop() == 0


async def test_a_ready_worker_shows_its_figures(variables: Edge) -> None:
    port = free_port()
    await variables.start_worker(health_port=str(port))
    await variables.publish([started("run")])
    await variables.drained()
    await until_ready(port)

    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        figures = await answer.text()

    assert 'tally_events_total{outcome="applied",worker="variables"} 1.0' in figures
    assert 'tally_ready{worker="variables"} 1.0' in figures


async def test_a_memory_request_goes_out_and_its_outcome_comes_back(variables: Edge) -> None:
    request = event(
        "run",
        "memory.read",
        {"node_id": "recall", "scope": "workflow", "subject": "workflow-global", "key": "seen", "type": "Integer"},
    )
    after = event("run", "variables.set", {"variables": {"copy": "{{recall.value}}"}})
    await variables.start_worker()
    await variables.publish([started("run"), request, after])
    await variables.drained()
    [sent] = [record.event for record in await variables.read(Topic.MEMORY_COMMANDS)]

    answer = outcome(
        sent,
        "memory.found",
        value=7,
        type="Integer",
        version=3,
        written_at="2026-11-30T00:00:00Z",
        expires_at="2026-12-30T00:00:00Z",
    )
    await variables.publish([answer, answer], Topic.MEMORY_RESULTS)
    await variables.drained()

    store = await variables.store("run")
    assert store is not None
    assert store.entries["v/copy"] == b"7"
    answers = {record.event.id: record.event.type for record in await variables.read(Topic.NODE_RESULTS)}
    assert list(answers.values()).count("node.answered") == 1


async def test_an_outcome_for_somebody_else_is_left_alone(variables: Edge) -> None:
    theirs = outcome(event("run", "memory.read", {}), "memory.missing", version=0)
    theirs.data["command_source"] = "/a/client"
    await variables.start_worker()
    await variables.publish([theirs], Topic.MEMORY_RESULTS)
    await variables.drained()

    assert await variables.store("run") is None
    assert await variables.read(Topic.DEAD_LETTERS) == []


async def test_a_fork_of_a_run_in_the_same_batch_finds_its_source(variables: Edge) -> None:
    source = [started("source"), completed("source", "one", value=1)]
    fork = started("fork", forked_from={"execution_id": "source", "revision": 2})
    await variables.publish([*source, fork])
    await variables.start_worker()
    await variables.drained()

    store = await variables.store("fork")
    assert store is not None
    assert store.entries["v/one"] == b'{"value":1}'


async def test_an_output_that_needs_the_input_waits_for_the_start_over_a_restart(variables: Edge) -> None:
    mapping = {"who": "{{input.who}}", "score": "{{risk.score}}"}
    output = event(
        "run", "activity.completed", {"activity_id": "risk", "output": {"score": 3}, "output_mapping": mapping}
    )
    behind = completed("run", "next", n=1)
    worker = await variables.start_worker()
    await variables.publish([output, behind], Topic.ACTIVITY_OUTPUTS)
    await variables.drained()
    await worker.kill()
    early = await variables.store("run")
    await variables.make_anew(Topic.EXECUTIONS_TABLE)
    await variables.start_worker()
    await variables.publish([output, behind], Topic.ACTIVITY_OUTPUTS)
    await variables.publish([started("run", input={"who": "mia"}), output])
    await variables.drained()

    store = await variables.store("run")
    assert early is not None
    assert store is not None
    assert not [entry for entry in early.entries if entry.startswith("v/")]
    assert [store.entries[f"v/{name}"] for name in ("who", "score", "next")] == [b'"mia"', b"3", b'{"n":1}']
    assert not [entry for entry in store.entries if entry.startswith(("q/", "b/"))]
    await assert_whole(variables, [output, behind, started("run", input={"who": "mia"})])


async def test_one_id_with_other_content_is_refused(variables: Edge) -> None:
    first = completed("run", "one", value=1)
    other = completed("run", "one", value=2)
    await variables.start_worker()
    await variables.publish([first, first, other])
    await variables.drained()

    letters = [record.event.data["code"] for record in await variables.read(Topic.DEAD_LETTERS)]
    assert letters == ["id_reused"]
    await assert_whole(variables, [first])
