"""What is tortured: a broker or three, a PostgreSQL that can be restarted, worker processes that can be killed."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import aiohttp
import asyncpg
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from tests.support import stack
from topics.admin import TopicAdmin
from topics.connection import KafkaConnection
from workers.embedded import ports
from workers.embedded.child import Child
from workers.embedded.postgres import EmbeddedPostgres
from workers.embedded.stack import TemporaryHome
from workers.runtime.migrations import migrate

PARTITIONS = 4
#: The shortest that a worker's heartbeats keep to on two busy cores.
SESSION_TIMEOUT_S = 4.0
KINDS = ("variables", "memory")
#: Exit codes that a torture explains: stopped (before it could listen to that too), killed, a named crash point.
#: 255 is asyncio's "somebody else has fetched the code": Popen does when a signal meets a process that just ended.
STOPPED = (0, -signal.SIGTERM, 255)
EXPLAINED = (*STOPPED, -signal.SIGKILL, 137)
_FIGURES = {
    "tally_events_total": "outcome",
    "tally_retries_total": "cause",
    "tally_executions_rebuilt_total": None,
    "tally_executions_evicted_total": None,
    "tally_items_expired_total": None,
}


#: A backlog must fill batches: only full ones of the memory worker are decided while the one before is written.
BATCH_SIZES = {"memory": "4", "variables": "60"}


@dataclass
class Worker:
    """A place for a worker process: it is started there again after each end."""

    kind: str
    name: str
    directory: Path
    environment: dict[str, str]
    program: Sequence[str]
    child: Child | None = None
    stopped: bool = False
    #: Whether the present process has a point to end itself at, which may be on the way to its stop.
    armed: bool = False
    starts: int = 0
    port: int = 0
    #: Figures of the present process, as last seen, and of those before.
    figures: Counter[str] = field(default_factory=Counter)
    earlier: Counter[str] = field(default_factory=Counter)

    @property
    def running(self) -> bool:
        """Whether there is a process (it may be stopped)."""
        return self.child is not None and self.child.exit_code is None

    @property
    def log(self) -> Path:
        """Where all its processes write."""
        return self.directory / f"{self.name}.log"

    async def start(self, crash_at: str | None = None) -> None:
        """Start a process; with `crash_at` it ends itself at that point."""
        self.earlier += self.figures
        self.figures = Counter()
        self.starts += 1
        self.stopped = False
        self.armed = crash_at is not None
        self.port = next(ports.candidates(None))
        environment = {**os.environ, **self.environment, "TALLY_HEALTH_PORT": str(self.port)}
        if crash_at is not None:
            environment["TALLY_CRASH_AT"] = crash_at
        self.child = await Child.start(
            [sys.executable, *self.program, self.kind],
            log=self.log,
            death_signal=signal.SIGKILL,
            environment=environment,
            directory=stack.REPOSITORY,
        )

    async def kill(self) -> None:
        """End it without warning."""
        if self.child is not None:
            await self.child.stop()

    async def stop(self) -> int:
        """Let it finish and leave; return the exit code."""
        self.stopped = True
        assert self.child is not None, "it was started"
        return await self.child.stop((signal.SIGTERM, 30.0))

    def send(self, what: signal.Signals) -> None:
        """Send a signal."""
        assert self.child is not None, "it was started"
        self.child.send(what)

    async def look(self, session: aiohttp.ClientSession) -> None:
        """Read its figures, if it answers."""
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with session.get(f"http://127.0.0.1:{self.port}/metrics") as response:
                text = await response.text()
            self.figures = _figures(text)


def _figures(text: str) -> Counter[str]:
    figures: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in _FIGURES:
                label = _FIGURES[sample.name]
                name = sample.name.removesuffix("_total") if label is None else sample.labels[label]
                figures[name] += int(sample.value)
    return figures


class Postgres:
    """A PostgreSQL of our own, on one port for its whole life."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._server = EmbeddedPostgres(home, port=None)
        self.dsn = ""

    async def __aenter__(self) -> Self:
        self.dsn = (await self._server.__aenter__()).dsn
        await migrate(SecretStr(self.dsn))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop()

    async def restart(self, *, immediate: bool) -> None:
        """Stop and start it; `immediate` is without a checkpoint, so that the start recovers."""
        port = int(self.dsn.rsplit(":", 1)[1].split("/")[0])
        child = self._server._child
        assert child is not None, "it runs"
        await child.stop((signal.SIGQUIT if immediate else signal.SIGINT, 20.0))
        for _ in range(20):
            self._server = EmbeddedPostgres(self._home, port=port)
            dsn = (await self._server.__aenter__()).dsn
            if dsn == self.dsn:
                return
            await self._server.stop()
            await asyncio.sleep(0.25)
        raise RuntimeError(f"PostgreSQL did not get its port {port} back")


def _ports_of_our_own() -> int:
    """Return the first of ports that nobody takes while a broker is down: neither Kafka's own nor for connections."""
    first = 20_000 + os.getpid() % 500 * 20
    return next(port for port in range(first, 32_000, 20) if all(map(ports.is_free, range(port, port + 20))))


class Brokers:
    """Three Apache Kafka brokers of our own, each of which can be killed and started again."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.address = ""

    async def __aenter__(self) -> Self:
        self.address = (await self._kafka("start", "--brokers", "3", "--port", str(_ports_of_our_own()))).strip()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._kafka("stop", "--kill")

    async def restart(self, broker: int, down_s: float, *, kill: bool) -> None:
        """Stop or kill one broker and start it again after `down_s` seconds."""
        await self._kafka("stop", "--broker", str(broker), *(["--kill"] if kill else []))
        await asyncio.sleep(down_s)
        await self._kafka("start", "--broker", str(broker))

    async def _kafka(self, *arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            stack.KAFKA, *arguments, "--dir", self._home, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        output, errors = await process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"kafka {' '.join(arguments)} failed:\n{errors.decode()}")
        return output.decode()


@dataclass
class Parts:
    """Everything, and the workers."""

    connection: KafkaConnection
    postgres: Postgres
    brokers: Brokers | None
    logs: Path
    program: Sequence[str]
    workers: dict[str, Worker] = field(default_factory=dict)
    #: Ends of worker processes that nothing explains.
    surprises: list[str] = field(default_factory=list)

    def place(self, kind: str, name: str) -> Worker:
        """Make a place for a worker."""
        environment = {
            "TALLY_KAFKA_BOOTSTRAP_SERVERS": self.connection.bootstrap_servers,
            "TALLY_POSTGRES_DSN": self.postgres.dsn,
            "TALLY_TOPIC_PREFIX": self.connection.prefix,
            "TALLY_KAFKA_SESSION_TIMEOUT_S": str(SESSION_TIMEOUT_S),
            "TALLY_ENDED_GRACE_S": "4",
            "TALLY_PURGE_INTERVAL_S": "2",
            "TALLY_BATCH_SIZE": BATCH_SIZES[kind],
            "TALLY_LOG_FORMAT": "json",
        }
        worker = Worker(kind, name, self.logs, environment, self.program)
        self.workers[name] = worker
        return worker

    async def stop(self, worker: Worker) -> None:
        """Ask a worker to stop, and note what it does instead."""
        code = await worker.stop()
        if code not in (EXPLAINED if worker.armed else STOPPED):
            self.surprises.append(f"{worker.name} ended with code {code} when it was asked to stop")

    async def session(self) -> asyncpg.Connection:
        """Connect to the database."""
        return await asyncpg.connect(self.postgres.dsn, timeout=10)

    async def supervise(self) -> None:
        """Start again what ended by itself; note what had no reason to."""
        while True:
            for worker in list(self.workers.values()):
                if worker.child is None or worker.stopped or worker.running:
                    continue
                code = worker.child.exit_code
                if code not in EXPLAINED:
                    self.surprises.append(f"{worker.name} ended with code {code}; see {worker.log}")
                await worker.start()
            await asyncio.sleep(0.1)

    async def watch(self) -> None:
        """Read the workers' figures again and again."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=0.7)) as session:
            while True:
                await asyncio.gather(*(worker.look(session) for worker in self.workers.values() if worker.running))
                await asyncio.sleep(0.5)

    def figures(self) -> Counter[str]:
        """Return the sum of what all processes counted, as far as it was seen."""
        total: Counter[str] = Counter()
        for worker in self.workers.values():
            total += worker.earlier + worker.figures
        return total


@contextlib.asynccontextmanager
async def parts(
    logs: Path, *, kafka: str | None = None, brokers: int = 1, program: Sequence[str] = ("-m", "workers", "worker")
) -> AsyncIterator[Parts]:
    """Start broker(s) (unless `kafka` is the address of one) and PostgreSQL, and make the topics."""
    async with contextlib.AsyncExitStack() as exits:
        cluster = None
        if kafka is None and brokers > 1:
            cluster = await exits.enter_async_context(Brokers(exits.enter_context(TemporaryHome())))
            kafka = cluster.address
        elif kafka is None:
            kafka = await exits.enter_async_context(stack.kafka())
        postgres = await exits.enter_async_context(Postgres(exits.enter_context(TemporaryHome())))
        connection = KafkaConnection(bootstrap_servers=kafka, prefix=stack.unique_prefix())
        async with TopicAdmin(connection) as admin:
            await admin.create(partitions=PARTITIONS, replication=brokers if cluster else 1)
        found = Parts(connection, postgres, cluster, logs, program)
        try:
            yield found
        finally:
            for worker in found.workers.values():
                worker.stopped = True
                await worker.kill()
