"""Everything on this machine: broker, PostgreSQL, topics, schema, workers; used by `up` and `demo`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from topics.admin import TopicAdmin
from workers.embedded import kafka, ports, postgres
from workers.embedded.errors import StartFailed
from workers.embedded.processes import WorkerProcesses
from workers.embedded.stack import EmbeddedStack, TemporaryHome
from workers.runtime.migrations import migrate
from workers.settings import Settings, read_settings

_READY_TIMEOUT_S = 60.0
_POLL_S = 0.1
#: Stands for the address that is only known when PostgreSQL runs.
_SOME_DSN = "postgresql://127.0.0.1/any"
#: A group forms in half of this on the embedded broker: waiting for it is most of a start.
_SESSION_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class Local:
    """A running stack: how to reach it, its servers, where its workers write, and the workers."""

    settings: Settings
    servers: EmbeddedStack
    logs: Path
    workers: WorkerProcesses

    async def unless_a_part_ends(self, work: Coroutine[Any, Any, None]) -> None:
        """Do `work`. Raises `StartFailed`, with the end of its log, when a worker or a server ends meanwhile."""
        tasks = [asyncio.create_task(each) for each in (work, self._worker_ended(), self.servers.ended())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # A worker that ends when its server does is not what went wrong first.
            for task in (tasks[0], tasks[2], tasks[1]):
                if task in done:
                    task.result()
                    return
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _worker_ended(self) -> None:
        process = await self.workers.first_to_end()
        raise StartFailed(f"the worker {process.name}", f"ended with code {await process.wait()}", process.log)


@asynccontextmanager
async def local_stack(
    names: Sequence[str],
    on_progress: Callable[[str], None],
    *,
    data: Path | None = None,
    preferred_ports: bool = False,
) -> AsyncIterator[Local]:
    """Run everything, each of the workers `names` in a process of its own, for as long as the block lasts.

    With `data`, PostgreSQL's files stay there; Kafka's records never stay. `preferred_ports` takes 9092 and 5432
    where they are free. Raises `EmbeddedError` and `DependencyDown`, each saying what to do, and `SettingsInvalid`
    before anything is started.
    """
    _settings(bootstrap_servers=f"{ports.LOOPBACK}:{kafka.DEFAULT_PORT}", dsn=SecretStr(_SOME_DSN))
    with TemporaryHome() as logs:
        async with _servers(data, on_progress, preferred_ports=preferred_ports) as stack:
            if preferred_ports:
                for line in taken_ports(stack.bootstrap_servers, stack.postgres_dsn):
                    on_progress(line)
            settings = _settings(bootstrap_servers=stack.bootstrap_servers, dsn=SecretStr(stack.postgres_dsn))
            await migrate(settings.postgres_dsn)
            async with TopicAdmin(settings.kafka()) as admin:
                created = await admin.create(partitions=settings.topic_partitions, replication=1)
            on_progress(f"the schema is up to date, {len(created)} topics were created")
            health = {name: next(ports.candidates(None)) for name in names}
            commands = {name: ("worker", name, "--health-port", str(port)) for name, port in health.items()}
            async with WorkerProcesses(commands, _environment(settings), logs) as workers:
                local = Local(settings, stack, logs, workers)
                await _until_ready(local, health)
                on_progress(f"the workers are ready: {', '.join(names)}")
                yield local


def taken_ports(bootstrap_servers: str, dsn: str) -> list[str]:
    """Return a line for each server that another program kept from its usual port."""
    found = (
        ("Kafka", kafka.DEFAULT_PORT, urlsplit(f"//{bootstrap_servers}").port),
        ("PostgreSQL", postgres.DEFAULT_PORT, urlsplit(dsn).port),
    )
    return [
        f"port {usual} was taken by another program: {name} uses {port} instead"
        for name, usual, port in found
        if port != usual
    ]


def _settings(*, bootstrap_servers: str, dsn: SecretStr) -> Settings:
    """Read the settings; where the servers are is ours to say. Raises `SettingsInvalid`."""
    return read_settings(
        kafka_bootstrap_servers=bootstrap_servers, kafka_security_protocol="PLAINTEXT", postgres_dsn=dsn
    )


def _servers(data: Path | None, on_progress: Callable[[str], None], *, preferred_ports: bool) -> EmbeddedStack:
    if preferred_ports:
        return EmbeddedStack(data, on_progress)
    return EmbeddedStack(data, on_progress, kafka_port=None, postgres_port=None)


def _environment(settings: Settings) -> Mapping[str, str]:
    return {
        "TALLY_KAFKA_BOOTSTRAP_SERVERS": settings.kafka_bootstrap_servers,
        "TALLY_KAFKA_SECURITY_PROTOCOL": "PLAINTEXT",
        "TALLY_KAFKA_SESSION_TIMEOUT_S": str(_SESSION_TIMEOUT_S),
        "TALLY_POSTGRES_DSN": settings.postgres_dsn.get_secret_value(),
    }


async def _until_ready(local: Local, health: Mapping[str, int]) -> None:
    """Wait until every worker says that it is ready. Raises `StartFailed` with the log of one that is not."""
    try:
        async with asyncio.timeout(_READY_TIMEOUT_S):
            await local.unless_a_part_ends(_all_ready(health.values()))
    except TimeoutError as error:
        name = next(iter(health))
        raise StartFailed(
            "the workers", f"were not ready within {_READY_TIMEOUT_S:g} s", local.logs / f"{name}.log"
        ) from error


async def _all_ready(health_ports: Iterable[int]) -> None:
    waiting = set(health_ports)
    while waiting:
        waiting -= {port for port in waiting if await _is_ready(port)}
        await asyncio.sleep(_POLL_S)


async def _is_ready(port: int) -> bool:
    """Ask a worker's /readyz; an HTTP client would take longer to import than this to run."""
    try:
        reader, writer = await asyncio.open_connection(ports.LOOPBACK, port)
    except OSError:
        return False  # it does not listen yet
    writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
    try:
        return b" 200 " in await reader.readline()
    finally:
        writer.close()
