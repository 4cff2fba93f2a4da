"""The real parts under test: addresses from the environment, else parts of our own for this test session."""

import contextlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from pydantic import SecretStr

from workers.embedded.kafka import EmbeddedKafka
from workers.embedded.postgres import EmbeddedPostgres
from workers.embedded.stack import TemporaryHome

REPOSITORY = Path(__file__).resolve().parents[2]
KAFKA = REPOSITORY / "deploy" / "kafka" / "kafka"
_START_TIMEOUT_S = 120


def given(name: str) -> str | None:
    """Read an address that the caller of the suite supplies; empty counts as absent."""
    return os.environ.get(name) or None


def apache_kafka_is_installed() -> bool:
    return (REPOSITORY / "deploy" / "kafka" / "target" / "installed").exists()


def is_kafka() -> bool:
    """Tell whether the suite runs on a Kafka; the embedded broker speaks only what the workers need of it."""
    return given("TALLY_KAFKA_BOOTSTRAP_SERVERS") is not None or apache_kafka_is_installed()


def broker_in_use() -> str:
    """Say in words on which broker the suite runs."""
    if address := given("TALLY_KAFKA_BOOTSTRAP_SERVERS"):
        return f"the Kafka at {address} (TALLY_KAFKA_BOOTSTRAP_SERVERS)"
    if apache_kafka_is_installed():
        return "Apache Kafka, started from deploy/kafka"
    return "the embedded broker (deploy/kafka/kafka install fetches Apache Kafka)"


@contextlib.asynccontextmanager
async def kafka() -> AsyncIterator[str]:
    """Give the bootstrap servers of the broker that `broker_in_use` names."""
    if address := given("TALLY_KAFKA_BOOTSTRAP_SERVERS"):
        yield address
    elif apache_kafka_is_installed():
        with apache_kafka(brokers=1) as address:
            yield address
    else:
        with TemporaryHome() as home:
            async with EmbeddedKafka(home, port=None) as broker:
                yield broker.bootstrap_servers


@contextlib.contextmanager
def apache_kafka(brokers: int) -> Iterator[str]:
    """Run an Apache Kafka cluster of our own; it ends with this process, however that dies."""
    with TemporaryHome() as directory, (directory / "log").open("w+") as log:
        command = [KAFKA, "start", "--brokers", str(brokers), "--dir", directory, "--foreground"]
        guard = REPOSITORY / "workers" / "embedded" / "guard.py"
        guarded = [sys.executable, "-I", "-S", guard, str(os.getpid()), "15", "-", "--", *command]
        process = subprocess.Popen(
            guarded, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
        with process:
            try:
                assert process.stdout is not None
                address = process.stdout.readline().strip()
                if not address:
                    log.seek(0)
                    raise RuntimeError(f"Apache Kafka did not start:\n{log.read()}")
                yield address
            finally:
                # Brokers of a test hold nothing worth a clean shutdown, which takes three of them ten seconds.
                subprocess.run([KAFKA, "stop", "--kill", "--dir", directory], check=True, capture_output=True)
                process.terminate()
                process.wait(_START_TIMEOUT_S)


@contextlib.asynccontextmanager
async def postgres() -> AsyncIterator[str]:
    """Give a DSN whose user may create databases."""
    if dsn := given("TALLY_POSTGRES_DSN"):
        yield dsn
    else:
        with TemporaryHome() as home:
            async with EmbeddedPostgres(home, port=None) as server:
                yield server.dsn


def with_database(dsn: str, name: str) -> str:
    return urlunsplit(urlsplit(dsn)._replace(path=f"/{name}"))


@contextlib.asynccontextmanager
async def database(dsn: str, template: str | None = None) -> AsyncIterator[str]:
    """Make a database, empty or a copy of `template`, give its DSN, drop it with all its sessions."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    copy = f" TEMPLATE {template}" if template else ""
    await _execute(dsn, f"CREATE DATABASE {name}{copy}")
    try:
        yield with_database(dsn, name)
    finally:
        await _execute(dsn, f"DROP DATABASE {name} WITH (FORCE)")


@contextlib.asynccontextmanager
async def migrated_template(dsn: str) -> AsyncIterator[str]:
    """Make a database with every migration applied, to copy from; give its name."""
    from workers.runtime.migrations import migrate

    async with database(dsn) as template:
        await migrate(SecretStr(template))
        yield urlsplit(template).path.removeprefix("/")


async def _execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn, timeout=30)
    try:
        await connection.execute(statement, timeout=60)
    finally:
        await connection.close(timeout=10)


def unique_prefix() -> str:
    """Name topics of one test: nobody else's, and recognisable by time when left on a shared broker."""
    return f"test-{int(time.time())}-{uuid.uuid4().hex[:6]}."
