"""Variable-store events: applied, revision committed, `variables.revised` acknowledged."""

import asyncio
import contextlib
import random
import signal
import sys
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from time import perf_counter

import asyncpg

from bench import kafka
from bench.cores import apart
from bench.figures import Row
from bench.kafka import ConsumeAndProduce
from bench.machine import FASTEST_PLANS, Bench, Servers, bench_on
from bench.options import Options
from bench.ours import Worker
from bench.process import worker
from bench.rounds import race
from schemas.envelope import Event
from schemas.exact_json import JsonObject
from schemas.identity import content_digest, key_of
from schemas.limits import DEFAULT_LIMITS
from topics.catalog import Topic
from topics.codec import STRUCTURED_HEADERS, encode
from topics.publisher import Publisher
from topics.records import ReceivedRecord, Record
from workers.logic.variables.state import ExecutionKey, ExecutionState
from workers.runtime.queries import load_queries
from workers.variables.decision import Facts, decide, head_rows
from workers.variables.intake import Arrival
from workers.variables.store import HeadRow, RevisionRow

_QUERIES = load_queries(__file__)
_OUTPUT_BYTES = 300
_EXECUTIONS = 1000
#: Activities of an execution take turns, so that stores keep their size from round to round.
_ACTIVITIES = 20
#: The size of a `variables.revised` of these events, measured.
_REVISED_BYTES = 760
_NOOP_TIMEOUT_S = 120.0


def started(execution_id: str) -> Event:
    """Return the event that opens a store."""
    data: JsonObject = {"workflow": {"name": "bench"}, "input": {"amount": 5}}
    return Event(
        id=f"{execution_id}/started", source="/bench", type="execution.started", subject=execution_id, data=data
    )


def completed(execution_id: str, activity: str, number: int) -> Event:
    """Return one activity's output."""
    note = "x" * (_OUTPUT_BYTES - len('{"note":"","number":1000000}'))
    data: JsonObject = {"activity_id": activity, "output": {"note": note, "number": number}}
    return Event(
        id=f"{execution_id}/{number}", source="/bench", type="activity.completed", subject=execution_id, data=data
    )


def record(event: Event) -> Record:
    """Return an event as the record that engines publish."""
    assert event.subject is not None
    return Record(Topic.EXECUTION_EVENTS, event.subject.encode(), encode(event), STRUCTURED_HEADERS)


class Outputs:
    """Endless activity outputs of many executions, as parallel runs send them; the same seed gives the same ones."""

    def __init__(self, run: str, seed: int = 7) -> None:
        self._random = random.Random(seed)
        self.executions = [f"{run}-{number}" for number in range(_EXECUTIONS)]
        self._opened = False
        self._number = 0

    def take(self, count: int) -> list[Event]:
        """Return the next events; the first of all open the executions."""
        events: list[Event] = []
        if not self._opened:
            self._opened = True
            events += [started(execution_id) for execution_id in islice(self.executions, count)]
        while len(events) < count:
            self._number += 1
            activity = f"step-{self._random.randrange(_ACTIVITIES)}"
            events.append(completed(self._random.choice(self.executions), activity, self._number))
        return events


class WriteRevisions:
    """The raw limit of PostgreSQL: the very rows that we write, set-wise, by asyncpg alone."""

    name = "raw: revisions and heads, set-wise, asyncpg"

    def __init__(self, bench: Bench, events: int) -> None:
        self._bench = bench
        self._events = events
        self._outputs = Outputs("raw")
        self._states = {
            key: ExecutionState.load(key, None, {})
            for key in (ExecutionKey("default", execution_id) for execution_id in self._outputs.executions)
        }
        self._batches: list[tuple[list[HeadRow], list[RevisionRow]]] = []
        #: `variables.revised` of the last prepared round: what Kafka is to carry.
        self.published: list[bytes] = []

    async def start(self) -> None:
        """Connect, and make the rows."""
        self._connection = await asyncpg.connect(self._bench.dsn, server_settings=FASTEST_PLANS)
        await self._connection.execute(_QUERIES["add_executions"], self._outputs.executions)

    async def stop(self) -> None:
        """Disconnect."""
        await self._connection.close()

    async def prepare(self) -> None:
        """Fold the next events into rows, in batches of our size."""
        events = self._outputs.take(self._events)
        size = self._bench.settings.batch_size
        self._batches, self.published = [], []
        for start in range(0, len(events), size):
            facts = Facts(datetime.now(UTC), DEFAULT_LIMITS, {}, {}, self._states, {})
            decision = decide([_arrival(event) for event in events[start : start + size]], facts)
            self._batches.append((head_rows(decision, self._states, {}), decision.revisions))
            self.published += [sent.value or b"" for sent in decision.outgoing()]

    async def run(self) -> float:
        """Commit them, batch after batch."""
        started_at = perf_counter()
        for heads, revisions in self._batches:
            await self._connection.execute(
                _QUERIES["write_revisions"],
                [head.execution.execution_id for head in heads],
                [head.revision for head in heads],
                [head.head for head in heads],
                [revision.execution.execution_id for revision in revisions],
                [revision.revision for revision in revisions],
                [revision.event_key for revision in revisions],
                [revision.digest for revision in revisions],
                [revision.body for revision in revisions],
                [revision.changes for revision in revisions],
                [revision.outgoing for revision in revisions],
            )
        return perf_counter() - started_at


def _arrival(event: Event) -> Arrival:
    assert event.subject is not None
    place = ReceivedRecord(Topic.EXECUTION_EVENTS, 0, 0, None, None)
    return Arrival(place, event, key_of(event), content_digest(event), ExecutionKey(event.tenant, event.subject))


class NoopAgent:
    """What Faust costs by itself: an agent that does nothing, in a process of its own."""

    name = "raw: Faust agent that does nothing"

    def __init__(self, bench: Bench, events: list[Record]) -> None:
        self._bench = bench
        self._events = events
        self._connection = replace(bench.settings.kafka(), prefix=f"{bench.settings.topic_prefix}noop.")
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Make the topic and connect."""
        await self._bench.make_topic(f"noop.{Topic.EXECUTION_EVENTS}")
        self._publisher = Publisher(self._connection, "bench")
        await self._publisher.start()

    async def stop(self) -> None:
        """End the process."""
        await self._publisher.stop()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def prepare(self) -> None:
        """Write the backlog while the process stands still."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
        await kafka.fill(self._publisher, self._events)

    async def run(self) -> float:
        """Let it read the backlog."""
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bench.noop_agent", self._connection.bootstrap_servers),
                *(self._connection.wire_name(Topic.EXECUTION_EVENTS), str(len(self._events))),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        assert self._process.stdout is not None
        started_at = perf_counter()
        self._process.send_signal(signal.SIGCONT)
        async with asyncio.timeout(_NOOP_TIMEOUT_S):
            line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the Faust agent that does nothing ended; run `python -m bench.noop_agent` to see why")
        return perf_counter() - started_at


async def measure(servers: Servers, options: Options, *, name: str, aim: float) -> Row:
    """Race the worker against its three limits."""
    events = options.events
    async with contextlib.AsyncExitStack() as stack:
        bench = await stack.enter_async_context(bench_on(servers))
        where = stack.enter_context(apart(1))
        publisher = await stack.enter_async_context(kafka.publisher(bench))
        done = await stack.enter_async_context(kafka.log_end(bench, Topic.VARIABLE_UPDATES))
        outputs = Outputs("ours")
        ours = Worker(
            "ours, 1 worker process",
            [worker("variables", 0, bench.environment(), bench.logs)],
            publisher,
            done,
            lambda: [record(event) for event in outputs.take(events)],
        )
        stack.push_async_callback(ours.stop)
        postgres = WriteRevisions(bench, events)
        await postgres.start()
        stack.push_async_callback(postgres.stop)
        sample = [record(event) for event in Outputs("sample").take(events)]
        noop = NoopAgent(bench, sample)
        await noop.start()
        stack.push_async_callback(noop.stop)
        pure_kafka = ConsumeAndProduce(bench, sample, [(b"r" * _REVISED_BYTES,)] * events, parse=True)
        await pure_kafka.start()
        stack.push_async_callback(pure_kafka.stop)

        found = await race([ours, postgres, noop, pure_kafka], events, options.rounds)
        await check(bench.dsn, "ours-%", events * (options.rounds + 1))
    cpu_us = sorted(ours.cpu_s[1:])[options.rounds // 2] / events * 1e6
    return Row(
        name,
        f"{events:,} activity outputs a round of {_OUTPUT_BYTES} bytes, {_EXECUTIONS:,} open executions, "
        f"batches of {bench.settings.batch_size}",
        found[0],
        tuple(found[1:]),
        aim=aim,
        notes=(f"our CPU: {cpu_us:.0f} µs an event", where),
    )


async def check(dsn: str, executions: str, events: int) -> None:
    """Hold that the figure is one of work that was done right: each event has its revision, each head is the last."""
    connection = await asyncpg.connect(dsn)
    try:
        revisions = await connection.fetchval("SELECT count(*) FROM revisions WHERE execution_id LIKE $1", executions)
        heads = await connection.fetchval("SELECT sum(revision) FROM executions WHERE execution_id LIKE $1", executions)
    finally:
        await connection.close()
    if (revisions, heads) != (events, events):
        raise RuntimeError(f"{events} events gave {revisions} revisions, and heads that add up to {heads}")
