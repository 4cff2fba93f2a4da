"""A cluster on disk: its ports, its brokers' settings, and which of them run. Used by the script `kafka` beside it."""

import base64
import contextlib
import json
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

HOST = "127.0.0.1"
MIB = 1024 * 1024
# Records of 4 MiB, with room for key, headers and the batch around them.
MAX_MESSAGE_BYTES = 5 * MIB


class Failed(Exception):  # noqa: N818 - it is a report to a person
    """Something that a person can mend; the message says how."""


def say(text):
    print(f"kafka: {text}", file=sys.stderr, flush=True)


class Cluster:
    """`DIR/cluster.json` (ports, cluster id) and `DIR/broker-N/` (settings, data, log, pid)."""

    def __init__(self, directory):
        self.directory = directory
        self.file = directory / "cluster.json"
        self.facts = json.loads(self.file.read_text()) if self.file.exists() else None

    def ids(self):
        return range(1, len(self.facts["ports"]) + 1) if self.facts else range(0)

    def home(self, broker):
        return self.directory / f"broker-{broker}"

    def address(self):
        return ",".join(f"{HOST}:{client}" for client, _ in self.facts["ports"])

    def pid(self, broker):
        """Return the pid of a broker that runs, else None. The command line shows that it is ours, not a reused pid."""
        file = self.home(broker) / "pid"
        if not file.exists():
            return None
        pid = int(file.read_text())
        return pid if str(self.home(broker)) in command_line(pid) else None

    def running(self):
        return [broker for broker in self.ids() if self.pid(broker)]

    def plan(self, brokers, port):
        """Settle size and ports, and write every broker's settings. Nothing of the cluster may run."""
        if self.facts and brokers and len(self.facts["ports"]) != brokers:
            raise Failed(
                f"{self.directory} holds a cluster of {len(self.facts['ports'])}: give another --dir, or remove it"
            )
        size = len(self.facts["ports"]) if self.facts else brokers or 1
        ports = self.facts["ports"] if self.facts else None
        if port is not None:
            ports = [[port + i, port + 10 + i] for i in range(size)]
            taken = [p for pair in ports for p in pair if not is_free(p)]
            if taken:
                raise Failed(f"port {taken[0]} is taken: choose another --port, or stop what listens there")
        elif ports is None:
            ports = [[9092 + i, 9102 + i] for i in range(size)]
        if not all(is_free(p) for pair in ports for p in pair):
            say(f"port {ports[0][0]} or one beside it is taken, choosing free ones")
            free = free_ports(2 * size)
            ports = [[free[2 * i], free[2 * i + 1]] for i in range(size)]
        cluster_id = self.facts["cluster_id"] if self.facts else new_cluster_id()
        self.facts = {"cluster_id": cluster_id, "ports": ports}
        for broker in self.ids():
            self.home(broker).mkdir(parents=True, exist_ok=True)
            settings = "".join(f"{name}={value}\n" for name, value in self.settings(broker).items())
            (self.home(broker) / "server.properties").write_text(settings)
        self.file.write_text(json.dumps(self.facts))

    def settings(self, broker):
        size = len(self.facts["ports"])
        client, controller = self.facts["ports"][broker - 1]
        copies, in_sync = (3, 2) if size == 3 else (1, 1)
        return {
            "process.roles": "broker,controller",
            "node.id": broker,
            "controller.quorum.voters": ",".join(f"{i}@{HOST}:{self.facts['ports'][i - 1][1]}" for i in self.ids()),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{HOST}:{client},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{client}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            # A backslash starts an escape in a properties file.
            "log.dirs": str(self.home(broker) / "data").replace("\\", "\\\\"),
            "auto.create.topics.enable": "false",
            "num.partitions": 4,
            "default.replication.factor": copies,
            "min.insync.replicas": in_sync,
            "unclean.leader.election.enable": "false",
            "offsets.topic.num.partitions": 10,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.num.partitions": 4,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.num.partitions": 1,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": in_sync,
            "message.max.bytes": MAX_MESSAGE_BYTES,
            "replica.fetch.max.bytes": MAX_MESSAGE_BYTES,
            # Groups form at once and lost members are noticed soon; tests wait for both.
            "group.initial.rebalance.delay.ms": 0,
            "group.min.session.timeout.ms": 1000,
            # A killed broker is replaced after this long; shorter ones fail on a busy machine of two cores.
            "broker.session.timeout.ms": 6000,
            "broker.heartbeat.interval.ms": 1000,
            # The cleaner's default buffer of 128 MiB would take a quarter of the heap.
            "log.cleaner.dedupe.buffer.size": 16 * MIB,
            # Indexes are mapped at full size: 10 MiB for each partition of each test's topics adds up.
            "log.index.size.max.bytes": MIB,
        }


def command_line(pid):
    """Return the words a living process was started with, else an empty text (ended, or a zombie)."""
    if sys.platform == "linux":  # small images have no ps
        process = Path("/proc", str(pid))
        with contextlib.suppress(OSError):  # it has ended
            # Empty for a moment while a process becomes another program, as the java launcher does with itself.
            while process.joinpath("stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                words = process.joinpath("cmdline").read_bytes()
                if words:
                    return words.replace(b"\0", b" ").decode(errors="replace")
                time.sleep(0.01)
        return ""
    answer = subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return answer.stdout


def new_cluster_id():
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return new_cluster_id() if text.startswith("-") else text


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_ports(count):
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((HOST, 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
