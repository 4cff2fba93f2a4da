"""From the publication of a command to its outcome, at a tenth of the maximum load."""

import asyncio
import contextlib
from collections.abc import Callable
from time import perf_counter
from typing import Any

import orjson
from aiokafka import AIOKafkaProducer

from bench import kafka
from bench.figures import Row, Series, percentile
from bench.machine import Bench, Servers, bench_on
from bench.memory_writes import Writes
from bench.options import Options
from bench.process import Measured, worker
from topics.catalog import Topic

_ITEMS = 20_000
#: A tenth of a maximum that was not measured in this run.
_RATE = 300.0
_P50_ABOVE_MS, _P99_ABOVE_MS = 15.0, 50.0


async def measure(servers: Servers, options: Options, maximum: float | None) -> list[Row]:
    """Return p50 and p99, each beside one produce and one consume. `maximum` is in commands per second."""
    rate = _RATE if maximum is None else maximum / 10
    ours: list[list[float]] = []
    raw: list[list[float]] = []
    async with bench_on(servers) as bench, contextlib.AsyncExitStack() as stack:
        process = worker("memory", 0, bench.environment(), bench.logs)
        await process.process.start()
        stack.push_async_callback(process.process.stop)
        writes = Writes("ours", _ITEMS)
        raw_topic = await bench.make_topic("latency")
        results = bench.settings.kafka().wire_name(Topic.MEMORY_RESULTS)
        await _warm_up(bench, writes, process)
        for _ in range(options.rounds):
            commands = bench.settings.kafka().wire_name(Topic.MEMORY_COMMANDS)
            ours.append(await _round(bench, writes, commands, results, _cause, rate, options.latency_s))
            raw.append(await _round(bench, writes, raw_topic, raw_topic, _self, rate, options.latency_s))
    work = f"{rate:,.0f} conditional writes a second on {_ITEMS:,} items, from the planned time of sending"
    return [
        _row("latency-p50", work, ours, raw, 0.5, _P50_ABOVE_MS),
        _row("latency-p99", work, ours, raw, 0.99, _P99_ABOVE_MS),
    ]


def _row(name: str, work: str, ours: list[list[float]], raw: list[list[float]], share: float, above_ms: float) -> Row:
    mine = Series("ours, publish to outcome", "ms", tuple(percentile(each, share) for each in ours))
    limit = Series("raw: one produce + one consume", "ms", tuple(percentile(each, share) for each in raw))
    above = mine.median - limit.median
    verdict = "reached" if above <= above_ms else "not reached"
    return Row(
        name,
        work,
        mine,
        (limit,),
        better="low",
        notes=(f"{above:.1f} ms above it; aim below {above_ms:g} ms: {verdict}",),
    )


async def _warm_up(bench: Bench, writes: Writes, process: Measured) -> None:
    """Write every item once, and wait until the worker has answered."""
    first = writes.take(_ITEMS)
    async with kafka.publisher(bench) as publisher, kafka.log_end(bench, Topic.MEMORY_RESULTS) as done:
        await kafka.fill(publisher, [writes.record(write) for write in first])
        await done.wait_for(len(first))
    assert process.process.running, "the worker answered just now"


def _cause(value: bytes) -> str:
    return str(orjson.loads(value)["data"]["command_id"])


def _self(value: bytes) -> str:
    return str(orjson.loads(value)["id"])


async def _round(
    bench: Bench,
    writes: Writes,
    target: str,
    answers: str,
    cause: Callable[[bytes], str],
    rate: float,
    seconds: float,
) -> list[float]:
    """Send at a steady rate, whatever comes back; return the milliseconds from each planned time to the answer."""
    sent: dict[str, float] = {}
    found: list[float] = []
    count = int(rate * seconds)
    records = [(f"{writes.run}-{write.number}", writes.record(write)) for write in writes.take(count)]
    producer = AIOKafkaProducer(**bench.settings.kafka().client_options("bench"), acks="all")
    await producer.start()
    try:
        async with kafka.consumer(bench, [answers]) as consumer:
            await consumer.seek_to_end()
            collecting = asyncio.create_task(_collect(consumer, sent, found, count, cause))
            began = perf_counter()
            futures = []
            for number, (event_id, record) in enumerate(records):
                due = began + number / rate
                if due > perf_counter():
                    await asyncio.sleep(due - perf_counter())
                sent[event_id] = due
                futures.append(await producer.send(target, record.value, record.key, headers=list(record.headers)))
            await asyncio.gather(*futures)
            async with asyncio.timeout(60 + seconds):
                await collecting
    finally:
        await producer.stop()
    return found


async def _collect(
    consumer: Any, sent: dict[str, float], found: list[float], count: int, cause: Callable[[bytes], str]
) -> None:
    while len(found) < count:
        for records in (await consumer.getmany(timeout_ms=200)).values():
            now = perf_counter()
            for record in records:
                due = sent.pop(cause(record.value), None)
                if due is not None:
                    found.append((now - due) * 1000)
