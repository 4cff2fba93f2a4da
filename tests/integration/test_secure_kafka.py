"""A Kafka with TLS and SASL: the same settings work for commands, workers and the client."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio

from schemas.envelope import Event
from schemas.exact_json import JsonObject
from schemas.memory import MemoryWritten
from tests.support.secure_kafka import environment, secure_kafka
from tests.support.stack import REPOSITORY, apache_kafka_is_installed
from topics.admin import TopicAdmin
from topics.catalog import CATALOG
from topics.client import Client
from topics.outcomes import find_outcome
from workers.cli.doctor import diagnose
from workers.settings import Settings, read_settings

pytestmark = pytest.mark.skipif(not apache_kafka_is_installed(), reason="the embedded broker knows no TLS")
ByProtocol = Mapping[str, Mapping[str, str]]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def protocols(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ByProtocol]:
    async with secure_kafka(tmp_path_factory.mktemp("kafka")) as protocols:
        yield protocols


def settings_of(variables: Mapping[str, str]) -> Settings:
    return read_settings(**{name.removeprefix("TALLY_").lower(): value for name, value in variables.items()})


def event(run: str, event_type: str, data: JsonObject) -> Event:
    return Event(id=f"{run}/{event_type}", source="/my/app", type=event_type, subject=run, data=data)


async def works(variables: Mapping[str, str]) -> None:
    """Let everything speak to a broker once."""
    settings = settings_of(variables)
    run = f"run-{settings.kafka_security_protocol}"
    async with TopicAdmin(settings.kafka()) as admin:
        await admin.create(partitions=1, replication=1)
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "workers", "worker", "variables", "memory"),
        cwd=REPOSITORY,
        env=environment(variables),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with Client(settings.kafka(), source="/my/app", timeout_s=60) as client:
            written = await client.write("stage", "checked", type="String", scope="shared", subject=("case", run))
            await client.publish(event(run, "execution.started", {"workflow": {"name": "w"}}))
            await client.publish(event(run, "execution.completed", {}))
        finished = await find_outcome(settings.kafka(), run, timeout_s=60)
        found = await diagnose(settings)
    finally:
        worker.terminate()
        await worker.wait()

    assert isinstance(written, MemoryWritten)
    assert isinstance(finished, Event)
    assert finished.type == "execution.finalized"
    assert {each.state for each in found} == {"ok"}


async def test_every_protocol_works_for_commands_workers_and_the_client(protocols: ByProtocol, database: str) -> None:
    async with asyncio.TaskGroup() as tasks:
        for protocol in ("SSL", "SASL_SSL"):
            tasks.create_task(works({**protocols[protocol], "TALLY_POSTGRES_DSN": database}))
        # Without TLS the clients differ in nothing else: once is enough.
        async with TopicAdmin(settings_of(protocols["SASL_PLAINTEXT"]).kafka()) as admin:
            assert len(await admin.create(partitions=1, replication=1)) == len(CATALOG)


#: Protocol, what is set wrongly, and what the command says to look at.
REFUSALS: tuple[tuple[str, Mapping[str, str], str], ...] = (
    ("SASL_PLAINTEXT", {"SASL_PASSWORD": "battery-staple"}, "SASL_USERNAME"),
    ("SASL_SSL", {"SASL_PASSWORD": "battery-staple"}, "SASL_USERNAME"),
    ("SASL_SSL", {"SASL_MECHANISM": "PLAIN"}, "SASL_USERNAME"),
    ("SASL_SSL", {"TLS_CA_FILE": "client.pem"}, "TLS_CA_FILE"),
    ("SSL", {"TLS_CERT_FILE": "server.pem", "TLS_KEY_FILE": "server.key"}, "SECURITY_PROTOCOL"),
    ("SSL", {"SECURITY_PROTOCOL": "PLAINTEXT"}, "SECURITY_PROTOCOL"),
    ("SASL_PLAINTEXT", {"SECURITY_PROTOCOL": "SASL_SSL"}, "SECURITY_PROTOCOL"),
)


async def test_a_broker_that_refuses_is_not_said_to_be_silent(protocols: ByProtocol) -> None:
    said = await asyncio.gather(*(said_of(protocols, protocol, wrong) for protocol, wrong, _ in REFUSALS))

    for (_, _, variable), line in zip(REFUSALS, said, strict=True):
        assert re.match(f"tally: Kafka at 127.0.0.1:[0-9]+ refuses the connection .*; see TALLY_KAFKA_{variable}", line)
        assert "battery-staple" not in line


async def said_of(protocols: ByProtocol, protocol: str, wrong: Mapping[str, str]) -> str:
    """Ask in a process of its own: the library leaves sockets open where a broker ends a TLS session early."""
    beside = Path(protocols["SSL"]["TALLY_KAFKA_TLS_CA_FILE"]).parent
    changes = {f"TALLY_KAFKA_{name}": str(beside / value) if "FILE" in name else value for name, value in wrong.items()}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "workers", "topics", "check"),
        cwd=REPOSITORY,
        env=environment({**protocols[protocol], **changes}),
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 3
    return said.decode()
