"""An Apache Kafka that wants to know who asks: TLS with certificates of its own making, SASL."""

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from schemas.errors import DependencyDown
from tests.support.ports import free_port
from tests.support.stack import REPOSITORY
from topics.connection import KafkaConnection
from topics.publisher import Publisher

JARS = REPOSITORY / "deploy" / "kafka" / "target" / "jars"
PASSWORD = "correct-horse"
PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
_START_TIMEOUT_S = 60.0


@asynccontextmanager
async def secure_kafka(directory: Path) -> AsyncIterator[Mapping[str, Mapping[str, str]]]:
    """Start a broker with a listener of each kind; give the settings (`TALLY_*`) of a client, by security protocol.

    It ends with this process, however that dies.
    """
    await asyncio.to_thread(_make_certificates, directory)
    ports = {name: free_port() for name in (*PROTOCOLS, "PLAINTEXT", "CONTROLLER")}
    properties = directory / "server.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in _properties(directory, ports).items()))
    java = ["java", "-Xmx384m", "-XX:+UseSerialGC", "-cp", f"{JARS}/*"]
    scram = f"SCRAM-SHA-512=[name=tally,password={PASSWORD}]"
    cluster_id = uuid.uuid4().hex[:22]
    with (directory / "kafka.log").open("wb") as log:
        format_storage = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties), "-S", scram]
        made = await asyncio.create_subprocess_exec(*java, *format_storage, stdout=log, stderr=log)
        assert await made.wait() == 0, (directory / "kafka.log").read_text()
        guard = str(REPOSITORY / "workers" / "embedded" / "guard.py")
        guarded = [sys.executable, "-I", "-S", guard, str(os.getpid()), "9", "-", "--", "/usr/bin/env"]
        broker = await asyncio.create_subprocess_exec(
            *guarded, *java, "kafka.Kafka", str(properties), stdout=log, stderr=log
        )
    try:
        await _until_it_answers(f"127.0.0.1:{ports['PLAINTEXT']}")
        yield {name: _settings(name, ports[name], directory) for name in PROTOCOLS}
    finally:
        broker.kill()
        await broker.wait()


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child process with these settings."""
    return {**os.environ, **settings}


def _settings(protocol: str, port: int, directory: Path) -> dict[str, str]:
    settings = {
        "TALLY_KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{port}",
        "TALLY_KAFKA_SECURITY_PROTOCOL": protocol,
        "TALLY_TOPIC_PREFIX": f"{protocol.lower()}.",
        "TALLY_TOPIC_PARTITIONS": "1",
    }
    if protocol.endswith("SSL"):
        settings["TALLY_KAFKA_TLS_CA_FILE"] = str(directory / "server.pem")
    if protocol == "SSL":
        settings["TALLY_KAFKA_TLS_CERT_FILE"] = str(directory / "client.pem")
        settings["TALLY_KAFKA_TLS_KEY_FILE"] = str(directory / "client.key")
    else:
        settings["TALLY_KAFKA_SASL_MECHANISM"] = "SCRAM-SHA-512" if protocol == "SASL_SSL" else "PLAIN"
        settings |= {"TALLY_KAFKA_SASL_USERNAME": "tally", "TALLY_KAFKA_SASL_PASSWORD": PASSWORD}
    return settings


def _make_certificates(directory: Path) -> None:
    """Make a certificate for the broker and one for its clients, each its own authority."""
    for name, extra in (("server", ["-addext", "subjectAltName=IP:127.0.0.1"]), ("client", [])):
        subject = ["-subj", f"/CN={name}", "-days", "2", *extra]
        files = ["-keyout", f"{name}.key", "-out", f"{name}.pem"]
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *files, *subject],
            cwd=directory,
            check=True,
            capture_output=True,
        )
    # Kafka reads a key and its certificate from one file.
    whole = (directory / "server.key").read_text() + (directory / "server.pem").read_text()
    (directory / "broker.pem").write_text(whole)


def _properties(directory: Path, ports: Mapping[str, int]) -> dict[str, object]:
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{ports['CONTROLLER']}",
        "controller.listener.names": "CONTROLLER",
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in PROTOCOLS)
        + ",PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": directory / "data",
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1000,
        "message.max.bytes": 5 * 1024 * 1024,
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
        "log.index.size.max.bytes": 1024 * 1024,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": directory / "broker.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": directory / "client.pem",
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{plain} user_tally="{PASSWORD}";',
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{scram};",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }


async def _until_it_answers(address: str) -> None:
    async with asyncio.timeout(_START_TIMEOUT_S):
        while True:
            publisher = Publisher(KafkaConnection(bootstrap_servers=address), "test")
            try:
                await publisher.start()
            except DependencyDown:
                await asyncio.sleep(0.2)
            else:
                await publisher.stop()
                return
