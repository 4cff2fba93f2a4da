"""Conditional memory writes, Kafka to committed and published outcome."""

import contextlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from time import perf_counter
from uuid import UUID

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
from schemas.exact_json import dumps
from topics.catalog import Topic
from topics.codec import STRUCTURED_HEADERS, encode
from topics.records import Record
from workers.logic.memory.commands import item_address
from workers.runtime.queries import load_queries

_QUERIES = load_queries(__file__)
_VALUE_BYTES = 300
#: So many writers come too late: their writes are refused and reported as races.
_STALE = 0.05
#: Sizes of what we publish for one command, measured: outcome, and the item's new state.
_OUTCOME_BYTES, _CHANGE_BYTES, _CONFLICT_BYTES = 380, 720, 1900


@dataclass(frozen=True, slots=True)
class Write:
    """One command, and what must come of it."""

    number: int
    address: str
    item: int
    expected: int
    stale: bool


class Writes:
    """Endless conditional writes on `items` items; the same seed gives the same ones."""

    def __init__(self, run: str, items: int, seed: int = 7) -> None:
        self.run = run
        self._random = random.Random(seed)
        self._versions = [0] * items
        self._number = 0
        self.value = {"note": "x" * (_VALUE_BYTES - len('{"note":""}'))}

    def address(self, item: int) -> str:
        """Return an item's address."""
        return item_address(
            "default", scope="workflow", workflow=self.run, subject=("patient", f"p{item}"), key="stage"
        )

    def take(self, count: int) -> list[Write]:
        """Return the next writes: each names the version that is current when its turn comes, or one before it.

        The first of all are longer than `count`, if need be: they write every item once.
        """
        writes = []
        items = range(len(self._versions)) if self._number == 0 else ()
        for item in chain(items, (self._random.randrange(len(self._versions)) for _ in range(count - len(items)))):
            current = self._versions[item]
            stale = current > 0 and self._random.random() < _STALE
            writes.append(Write(self._number, self.address(item), item, current - stale, stale))
            self._versions[item] += not stale
            self._number += 1
        return writes

    def record(self, write: Write) -> Record:
        """Return a write as the record that clients publish."""
        event = Event(
            id=f"{self.run}-{write.number}",
            source="/bench",
            type="memory.write",
            data={
                "scope": "workflow",
                "workflow": self.run,
                "subject": {"kind": "patient", "id": f"p{write.item}"},
                "key": "stage",
                "type": "Json",
                "value": self.value,  # type: ignore[dict-item] # texts only
                "expected_version": write.expected,
                "writer": {"execution_id": f"run-{write.number % 1000}"},
            },
        )
        return Record(Topic.MEMORY_COMMANDS, write.address.encode(), encode(event), STRUCTURED_HEADERS)


class CompareAndSet:
    """The raw limit of PostgreSQL: set-wise compare-and-set with history and outcome rows, by asyncpg alone."""

    name = "raw: set-wise CAS, history and outcomes, asyncpg"

    def __init__(self, dsn: str, writes: Writes, items: int, events: int, batch: int) -> None:
        self._dsn = dsn
        self._writes = writes
        self._items = items
        self._events = events
        self._batch = batch
        self._value = dumps(writes.value)
        self._prepared: list[list[Write]] = []
        self._keys: list[list[UUID]] = []

    async def start(self) -> None:
        """Connect, and make the rows."""
        self._connection = await asyncpg.connect(self._dsn, server_settings=FASTEST_PLANS)
        addresses = [self._writes.address(item) for item in range(self._items)]
        await self._connection.execute(_QUERIES["add_items"], addresses)

    async def stop(self) -> None:
        """Disconnect."""
        await self._connection.close()

    async def prepare(self) -> None:
        """Cut the next writes into batches."""
        writes = self._writes.take(self._events)
        self._prepared = [writes[start : start + self._batch] for start in range(0, len(writes), self._batch)]
        self._keys = [
            [UUID(bytes=blake2b(b"%d" % w.number, digest_size=16).digest()) for w in b] for b in self._prepared
        ]

    async def run(self) -> float:
        """Commit them, batch after batch."""
        started = perf_counter()
        for batch, keys in zip(self._prepared, self._keys, strict=True):
            async with self._connection.transaction():
                rows = await self._connection.fetch(_QUERIES["lock_items"], list({write.address for write in batch}))
                await self._write(batch, keys, {row["address"]: row["version"] for row in rows})
        return perf_counter() - started

    async def _write(self, batch: Sequence[Write], keys: Sequence[UUID], versions: dict[str, int]) -> None:
        final: dict[str, tuple[int, UUID]] = {}
        history: list[tuple[str, int, UUID]] = []
        conflicts: list[bytes | None] = []
        for write, key in zip(batch, keys, strict=True):
            if versions[write.address] == write.expected:
                versions[write.address] += 1
                final[write.address] = (versions[write.address], key)
                history.append((write.address, versions[write.address], key))
                conflicts.append(None)
            else:
                conflicts.append(b"c" * _CONFLICT_BYTES)
        await self._connection.execute(
            _QUERIES["set_items"],
            list(final),
            [version for version, _ in final.values()],
            [self._value] * len(final),
            [key for _, key in final.values()],
            [address for address, _, _ in history],
            [version for _, version, _ in history],
            [self._value] * len(history),
            [key for _, _, key in history],
            keys,
            [b"d" * 16] * len(batch),
            [write.address for write in batch],
            [b"o" * _OUTCOME_BYTES] * len(batch),
            conflicts,
        )


async def measure(servers: Servers, options: Options, *, name: str, items: int, processes: int, aim: float) -> Row:
    """Race the worker against its limits on `items` items."""
    events = options.events
    async with contextlib.AsyncExitStack() as stack:
        bench = await stack.enter_async_context(bench_on(servers))
        where = stack.enter_context(apart(processes))
        ours = await _ours(stack, bench, items, events, processes)
        raw_writes = Writes("raw", items)
        postgres = CompareAndSet(bench.dsn, raw_writes, items, events, bench.settings.batch_size)
        await postgres.start()
        stack.push_async_callback(postgres.stop)
        samples = Writes("sample", items)
        samples.take(1)
        sample = samples.take(events)
        answers = [
            (b"o" * _OUTCOME_BYTES, b"c" * (_CONFLICT_BYTES if write.stale else _CHANGE_BYTES)) for write in sample
        ]
        pure_kafka = ConsumeAndProduce(bench, [raw_writes.record(write) for write in sample], answers, parse=False)
        await pure_kafka.start()
        stack.push_async_callback(pure_kafka.stop)

        found = await race([ours, postgres, pure_kafka], events, options.rounds)
        await _check(bench.dsn, max(events, items) + events * options.rounds)
    cpu_us = sorted(ours.cpu_s[1:])[options.rounds // 2] / events * 1e6
    return Row(
        name,
        _work(bench, items, events),
        found[0],
        tuple(found[1:]),
        aim=aim,
        notes=(f"our CPU: {cpu_us:.0f} µs a command", where),
    )


async def measure_scale(servers: Servers, options: Options, *, name: str, items: int, share: float, aim: float) -> Row:
    """Race two processes against one, each with so small a `share` of a core that the servers limit neither."""
    # In short rounds what a poll waits for is all there is to see.
    events = max(options.events // 3, 15_000)
    async with contextlib.AsyncExitStack() as stack:
        benches = [await stack.enter_async_context(bench_on(servers)) for _ in range(2)]
        one, two = [
            await _ours(stack, bench, items, events, processes, share) for processes, bench in enumerate(benches, 1)
        ]
        found = await race([two, one], events, options.rounds)
        for bench in benches:
            await _check(bench.dsn, max(events, items) + events * options.rounds)
    return Row(
        name,
        f"{_work(benches[0], items, events)}; {share:.0%} of a core for each process",
        found[0],
        tuple(found[1:]),
        aim=aim,
    )


async def _ours(
    stack: contextlib.AsyncExitStack, bench: Bench, items: int, events: int, processes: int, share: float = 1.0
) -> Worker:
    publisher = await stack.enter_async_context(kafka.publisher(bench))
    done = await stack.enter_async_context(kafka.log_end(bench, Topic.MEMORY_RESULTS))
    writes = Writes("ours", items)
    ours = Worker(
        f"ours, {processes} worker process{'es' if processes > 1 else ''}",
        [worker("memory", number, bench.environment(), bench.logs) for number in range(processes)],
        publisher,
        done,
        lambda: [writes.record(write) for write in writes.take(events)],
        share=share,
    )
    stack.push_async_callback(ours.stop)
    return ours


def _work(bench: Bench, items: int, events: int) -> str:
    return (
        f"{events:,} commands a round on {items:,} items, {_VALUE_BYTES}-byte values, {_STALE:.0%} of them stale, "
        f"batches of {bench.settings.batch_size}"
    )


async def _check(dsn: str, commands: int) -> None:
    """Hold that the figure is one of work that was done right: every command has one outcome."""
    connection = await asyncpg.connect(dsn)
    try:
        mine = "address LIKE 'default/workflow/ours/%'"
        outcomes = await connection.fetchval(f"SELECT count(*) FROM memory_outcomes WHERE {mine}")
        refused = await connection.fetchval(
            f"SELECT count(*) FROM memory_outcomes WHERE {mine} AND conflict IS NOT NULL"
        )
        versions = await connection.fetchval(f"SELECT sum(version) FROM memory_items WHERE {mine}")
    finally:
        await connection.close()
    if (outcomes, versions + refused) != (commands, commands):
        raise RuntimeError(f"{commands} commands gave {outcomes} outcomes, {versions} versions, {refused} conflicts")
