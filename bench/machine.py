"""The broker, the database and the topics of one benchmark; all of it its own, gone afterwards."""

import contextlib
import os
import platform
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from pydantic import SecretStr

from topics.admin import TopicAdmin
from workers.embedded.kafka import EmbeddedKafka
from workers.embedded.postgres import EmbeddedPostgres
from workers.embedded.stack import TemporaryHome
from workers.runtime.migrations import migrate
from workers.runtime.postgres import BY_KEY
from workers.settings import Settings, read_settings

_REPOSITORY = Path(__file__).resolve().parents[1]
_KAFKA = _REPOSITORY / "deploy" / "kafka" / "kafka"
_GUARD = _REPOSITORY / "workers" / "embedded" / "guard.py"
_STOP_TIMEOUT_S = 60
PARTITIONS = 8
#: The raw contenders' sessions have the same advantage as ours.
FASTEST_PLANS = {"plan_cache_mode": "force_custom_plan", **BY_KEY}
#: Workers are held (SIGSTOP) while their input is written: that must not look like a death.
SESSION_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Servers:
    """A broker and a PostgreSQL, and what they are."""

    kafka: str
    postgres: str
    broker: str


@dataclass(frozen=True, slots=True)
class Bench:
    """Topics and a database of one row's own. `logs` is where its workers write."""

    settings: Settings
    logs: Path

    @property
    def dsn(self) -> str:
        """How asyncpg reaches the database."""
        return self.settings.postgres_dsn.get_secret_value()

    def environment(self) -> dict[str, str]:
        """Return the settings as a worker's environment."""
        return {
            "TALLY_KAFKA_BOOTSTRAP_SERVERS": self.settings.kafka_bootstrap_servers,
            "TALLY_POSTGRES_DSN": self.dsn,
            "TALLY_TOPIC_PREFIX": self.settings.topic_prefix,
            "TALLY_KAFKA_SESSION_TIMEOUT_S": str(self.settings.kafka_session_timeout_s),
            "TALLY_BATCH_SIZE": str(self.settings.batch_size),
            "TALLY_HEALTH_HOST": "",
            "TALLY_LOG_FORMAT": "json",
        }

    async def make_topic(self, name: str, partitions: int = PARTITIONS) -> str:
        """Create a topic outside of the catalog; return its name on the broker."""
        wire_name = f"{self.settings.topic_prefix}{name}"
        admin = AIOKafkaAdminClient(**self.settings.kafka().client_options("bench"))
        await admin.start()
        try:
            await admin.create_topics([NewTopic(wire_name, partitions, 1)])
        finally:
            await admin.close()
        return wire_name


@contextlib.asynccontextmanager
async def servers() -> AsyncIterator[Servers]:
    """Use the servers that the settings name; else Apache Kafka where it is installed, and the embedded parts."""
    given = read_settings()
    async with contextlib.AsyncExitStack() as stack:
        if "kafka_bootstrap_servers" in given.model_fields_set:
            kafka, broker = given.kafka_bootstrap_servers, f"the Kafka at {given.kafka_bootstrap_servers}"
        elif (_KAFKA.parent / "target" / "installed").exists():
            kafka, broker = stack.enter_context(_apache_kafka()), "Apache Kafka, one broker"
        else:
            home = stack.enter_context(TemporaryHome())
            kafka = (await stack.enter_async_context(EmbeddedKafka(home, port=None))).bootstrap_servers
            broker = "the embedded broker (in memory)"
        if "postgres_dsn" in given.model_fields_set:
            postgres = given.postgres_dsn.get_secret_value()
        else:
            home = stack.enter_context(TemporaryHome())
            postgres = (await stack.enter_async_context(EmbeddedPostgres(home, port=None))).dsn
        yield Servers(kafka, postgres, broker)


@contextlib.contextmanager
def _apache_kafka() -> Iterator[str]:
    with TemporaryHome() as directory, (directory / "log").open("w+") as log:
        command = [str(_KAFKA), "start", "--brokers", "1", "--dir", str(directory), "--foreground"]
        guarded = [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), "15", "-", "--", *command]
        with subprocess.Popen(
            guarded, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        ) as process:
            try:
                assert process.stdout is not None
                address = process.stdout.readline().strip()
                if not address:
                    log.seek(0)
                    raise RuntimeError(f"Apache Kafka did not start:\n{log.read()}")
                yield address
            finally:
                subprocess.run([_KAFKA, "stop", "--kill", "--dir", directory], check=True, capture_output=True)
                process.terminate()
                process.wait(_STOP_TIMEOUT_S)


@contextlib.asynccontextmanager
async def bench_on(parts: Servers) -> AsyncIterator[Bench]:
    """Make a database and the catalog's topics for one row."""
    name = f"bench_{uuid.uuid4().hex[:12]}"
    with TemporaryHome() as logs:
        await _execute(parts.postgres, f"CREATE DATABASE {name}")
        try:
            dsn = urlunsplit(urlsplit(parts.postgres)._replace(path=f"/{name}"))
            settings = read_settings(
                kafka_bootstrap_servers=parts.kafka,
                postgres_dsn=SecretStr(dsn),
                topic_prefix=f"{name}.",
                topic_partitions=PARTITIONS,
                kafka_session_timeout_s=SESSION_TIMEOUT_S,
            )
            await migrate(settings.postgres_dsn)
            async with TopicAdmin(settings.kafka()) as admin:
                await admin.create(partitions=PARTITIONS, replication=1)
            yield Bench(settings, logs)
        finally:
            await _execute(parts.postgres, f"DROP DATABASE {name} WITH (FORCE)")


async def _execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn, timeout=30)
    try:
        await connection.execute(statement, timeout=60)
    finally:
        await connection.close(timeout=10)


async def describe(parts: Servers) -> dict[str, object]:
    """Return what a reader must know to compare figures: the machine, the servers, and how busy it was."""
    connection = await asyncpg.connect(parts.postgres, timeout=30)
    try:
        version = await connection.fetchval("SHOW server_version")
    finally:
        await connection.close(timeout=10)
    return {
        "CPUs": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "Python": platform.python_version(),
        "PostgreSQL": version,
        "broker": parts.broker,
    }
