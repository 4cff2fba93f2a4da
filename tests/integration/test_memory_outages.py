"""PostgreSQL or Kafka away, in front of a worker that goes on when it is back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit, urlunsplit

import pytest_asyncio

from tests.support.memory import Memory, command, memory_on, until
from tests.support.ports import free_port, readiness
from workers.embedded.kafka import EmbeddedKafka


class Door:
    """A TCP proxy that can be shut: open connections break, new ones are refused."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._server: asyncio.Server | None = None
        self._passages: set[asyncio.Task[None]] = set()
        self.port = free_port()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shut()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", self.port)

    async def shut(self) -> None:
        assert self._server is not None
        self._server.close()
        for passage in self._passages:
            passage.cancel()
        await asyncio.gather(*self._passages, return_exceptions=True)
        self._passages.clear()
        await self._server.wait_closed()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passages.add(task)
        ends = [writer]
        try:
            there, back = await asyncio.open_connection(*self._target)
            ends.append(back)
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(_pump(reader, back))
                pumps.create_task(_pump(there, writer))
        except* OSError:
            pass
        finally:
            for end in ends:
                end.transport.abort()
                with contextlib.suppress(OSError):
                    await end.wait_closed()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        sink.write(data)
        await sink.drain()
    sink.close()


@pytest_asyncio.fixture
async def memory(kafka_bootstrap_servers: str, database: str, topic_prefix: str) -> AsyncIterator[Memory]:
    async with memory_on(kafka_bootstrap_servers, database, topic_prefix) as memory:
        yield memory


async def test_while_postgresql_is_away_the_worker_is_not_ready_and_afterwards_nothing_is_lost(memory: Memory) -> None:
    parts = urlsplit(memory.dsn)
    async with Door(parts.hostname or "", parts.port or 5432) as door:
        through = urlunsplit(parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{door.port}"))
        health_port = free_port()
        process = await memory.start_worker(
            postgres_dsn=through, health_host="127.0.0.1", health_port=health_port, batch_size=20
        )
        await until(lambda: _ready(health_port, 200))
        increments = [command("memory.update", type="Integer", operation="increment") for _ in range(300)]
        await memory.publish(*increments[:150])

        await door.shut()
        await memory.publish(*increments[150:])
        await until(lambda: _ready(health_port, 503))
        await door.open()
        await until(lambda: _ready(health_port, 200))

        outcomes = await memory.outcomes([event.id for event in increments])
        assert [outcomes[event.id].data["version"] for event in increments] == list(range(1, 301))
        assert process.returncode is None
        await memory.kill(process)


async def _ready(port: int, status: int) -> bool | None:
    return True if (await readiness(port))[0] == status else None


async def test_an_idle_worker_notices_that_kafka_is_away(database: str, topic_prefix: str, tmp_path: Path) -> None:
    async with (
        EmbeddedKafka(tmp_path, port=None) as broker,
        memory_on(broker.bootstrap_servers, database, topic_prefix) as memory,
    ):
        health_port = free_port()
        process = await memory.start_worker(health_host="127.0.0.1", health_port=health_port)
        await until(lambda: _ready(health_port, 200))

        await broker.stop()

        await until(lambda: _ready(health_port, 503))
        assert process.returncode is None


async def test_a_worker_that_is_asked_to_stop_ends_in_good_order(memory: Memory) -> None:
    process = await memory.start_worker()
    await memory.ask(command(type="Integer", value=1))

    process.terminate()

    assert await asyncio.wait_for(process.wait(), 30) == 0
    assert await memory.committed() == {0: 1}
