"""Topics at a broker: made from the catalog, compared with it, each difference explained.

Nothing is altered that exists: a person decides about a partition count or a retention that others rely on.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from schemas.errors import DependencyDown, UsageError
from topics.away import kafka_down
from topics.catalog import CATALOG, DAY_MS, MAX_MESSAGE_BYTES, Topic, TopicSpec
from topics.connection import KafkaConnection
from topics.reach import why_down

_REQUEST_TIMEOUT_MS = 15_000
_ALREADY_EXISTS = 36
_KNOWN_TIMEOUT_S = 30.0
_KNOWN_PAUSE_S = 0.05
#: From this many replicas on, a write waits for two of them: losing one loses nothing and stops nothing.
_SAFE_REPLICATION = 3
_FOR_EVER = -1
_COMPACTED_SEGMENT_MS = 3600 * 1000
#: What a broker uses where a topic says nothing (Apache Kafka's defaults).
_DEFAULTS = {"cleanup.policy": "delete", "retention.ms": str(7 * DAY_MS), "max.message.bytes": "1048588"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingTopic:
    """A topic as the broker has it; `replication` is that of its worst partition."""

    topic: Topic
    partitions: int
    replication: int
    configs: Mapping[str, str] = field(default_factory=dict)

    def config(self, name: str) -> str:
        """Return a configuration value, or what a broker uses without one."""
        return self.configs.get(name) or _DEFAULTS[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One difference. An `error` breaks a promise; anything else is only worth knowing."""

    topic: Topic
    error: bool
    what: str
    remedy: str


def configs_of(spec: TopicSpec, replication: int) -> dict[str, str]:
    """Return the topic configuration that the catalog asks for."""
    configs = {
        "cleanup.policy": spec.clean_up,
        "retention.ms": str(_FOR_EVER if spec.retention_ms is None else spec.retention_ms),
        "max.message.bytes": str(MAX_MESSAGE_BYTES),
    }
    if spec.clean_up == "compact":
        # The active segment is never compacted: with Kafka's segments of a week, a newcomer reads a week of changes.
        configs |= {"segment.ms": str(_COMPACTED_SEGMENT_MS), "min.cleanable.dirty.ratio": "0.1"}
    if replication >= _SAFE_REPLICATION:
        configs["min.insync.replicas"] = "2"
    return configs


def compare(
    existing: Iterable[ExistingTopic], *, partitions: int, replication: int, outcome_retention_days: int
) -> list[Finding]:
    """Return how the topics differ from the catalog and the settings, in the catalog's order."""
    found = {topic.topic: topic for topic in existing}
    findings: list[Finding] = []
    for spec in CATALOG:
        topic = found.get(spec.topic)
        if topic is None:
            findings.append(_error(spec.topic, "is missing", "run `tally topics create`"))
            continue
        findings += _count_findings(topic, partitions, replication)
        findings += _config_findings(topic, spec, outcome_retention_days)
    return findings + _copartition_findings(found)


def _error(topic: Topic, what: str, remedy: str) -> Finding:
    return Finding(topic=topic, error=True, what=what, remedy=remedy)


def _note(topic: Topic, what: str, remedy: str) -> Finding:
    return Finding(topic=topic, error=False, what=what, remedy=remedy)


def _count_findings(topic: ExistingTopic, partitions: int, replication: int) -> list[Finding]:
    findings: list[Finding] = []
    if topic.partitions != partitions:
        findings.append(
            _note(
                topic.topic,
                f"has {topic.partitions} partitions, TALLY_TOPIC_PARTITIONS says {partitions}",
                "nothing breaks; adding partitions moves keys, so drain the topic before you do",
            )
        )
    if topic.replication < replication:
        findings.append(
            _note(
                topic.topic,
                f"has {topic.replication} replicas, TALLY_TOPIC_REPLICATION says {replication}",
                "reassign its partitions with kafka-reassign-partitions.sh",
            )
        )
    return findings


def _config_findings(topic: ExistingTopic, spec: TopicSpec, outcome_retention_days: int) -> list[Finding]:
    findings: list[Finding] = []
    clean_up = topic.config("cleanup.policy")
    if clean_up != spec.clean_up:
        why = "old states pile up" if spec.clean_up == "compact" else "records of one key would replace each other"
        findings.append(
            _error(topic.topic, f"has cleanup.policy={clean_up}: {why}", f"set cleanup.policy={spec.clean_up}")
        )
    size = int(topic.config("max.message.bytes"))
    if size < MAX_MESSAGE_BYTES:
        findings.append(
            _error(
                topic.topic,
                f"has max.message.bytes={size}: records of 4 MiB would be refused",
                f"set max.message.bytes={MAX_MESSAGE_BYTES}",
            )
        )
    retention = int(topic.config("retention.ms"))
    if spec.clean_up == "delete" and spec.retention_ms is not None:
        findings += _retention_findings(topic.topic, spec, retention, outcome_retention_days)
    return findings


def _retention_findings(topic: Topic, spec: TopicSpec, retention: int, outcome_days: int) -> list[Finding]:
    assert spec.retention_ms is not None
    if spec.direction == "in" and (retention == _FOR_EVER or retention > outcome_days * DAY_MS):
        return [
            _error(
                topic,
                f"keeps its records for {_days(retention)}, outcomes are kept for {outcome_days} days: "
                "a record that comes again later would be applied twice",
                f"set TALLY_OUTCOME_RETENTION_DAYS above it, or retention.ms={spec.retention_ms}",
            )
        ]
    if retention != _FOR_EVER and retention < spec.retention_ms:
        return [
            _note(
                topic,
                f"keeps its records for {_days(retention)}, the catalog says {_days(spec.retention_ms)}",
                "a reader that is away for longer misses records",
            )
        ]
    return []


def _days(milliseconds: int) -> str:
    return "ever" if milliseconds == _FOR_EVER else f"{milliseconds / DAY_MS:.3g} days"


def _copartition_findings(found: Mapping[Topic, ExistingTopic]) -> list[Finding]:
    members = [found[spec.topic] for spec in CATALOG if spec.copartitioned and spec.topic in found]
    counts = sorted({member.partitions for member in members})
    if len(counts) < 2:
        return []
    named = ", ".join(f"{member.topic.value} {member.partitions}" for member in members)
    return [
        _error(
            members[0].topic,
            f"and its companions have unequal partition counts ({named}): one execution would have two workers",
            f"give all of them {counts[-1]} partitions (kafka-topics.sh --alter), while the workers are stopped",
        )
    ]


class TopicAdmin:
    """The topics of one broker. Every method raises `DependencyDown` when it does not answer."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._admin = AIOKafkaAdminClient(
            **connection.client_options("tally-admin"), request_timeout_ms=_REQUEST_TIMEOUT_MS
        )

    async def __aenter__(self) -> Self:
        try:
            await self._admin.start()
        except (KafkaError, OSError) as error:
            await self._admin.close()
            raise await why_down(self._connection, error) from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._admin.close()

    async def create(self, *, partitions: int, replication: int) -> list[Topic]:
        """Make the topics that are missing, wait until they can be used, and return them.

        Raises `UsageError` when the broker refuses one.
        """
        present = await self._present()
        missing = [spec for spec in CATALOG if spec.topic not in present]
        if not missing:
            return []
        wanted = [
            NewTopic(
                self._connection.wire_name(spec.topic),
                partitions,
                replication,
                topic_configs=configs_of(spec, replication),
            )
            for spec in missing
        ]
        try:
            response = await self._admin.create_topics(wanted)
        except (KafkaError, OSError) as error:
            raise self._down(error) from error
        created: list[Topic] = []
        for name, code, message in response.topic_errors:
            if code and code != _ALREADY_EXISTS:
                raise UsageError(
                    f"the broker refused to create {name}: {message or f'error {code}'}; "
                    "see TALLY_TOPIC_PARTITIONS, TALLY_TOPIC_REPLICATION and the account's rights"
                )
            if not code:
                created.append(self._connection.logical(name))
        await self._until_known([spec.topic for spec in missing])
        return created

    async def _until_known(self, topics: Sequence[Topic]) -> None:
        """Wait until every partition has a leader: a broker tells of a new topic a moment after it has made it."""
        deadline = asyncio.get_running_loop().time() + _KNOWN_TIMEOUT_S
        while asyncio.get_running_loop().time() < deadline:
            present = [self._connection.wire_name(topic) for topic in await self._present() if topic in topics]
            described = await self._admin.describe_topics(present) if len(present) == len(topics) else []
            partitions = [partition for topic in described for partition in topic["partitions"]]
            if partitions and all(partition["leader"] >= 0 for partition in partitions):
                return
            await asyncio.sleep(_KNOWN_PAUSE_S)
        raise DependencyDown(
            "Kafka",
            self._connection.bootstrap_servers,
            f"new topics have no leaders after {_KNOWN_TIMEOUT_S:g} s",
        )

    async def existing(self) -> list[ExistingTopic]:
        """Return the catalog's topics that the broker has."""
        # Only what exists is described: some brokers create a topic that is asked for.
        present = await self._present()
        if not present:
            return []
        names = [self._connection.wire_name(topic) for topic in present]
        try:
            described = await self._admin.describe_topics(names)
            configured = await self._admin.describe_configs(
                [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
            )
        except (KafkaError, OSError) as error:
            raise self._down(error) from error
        configs = _configs_by_topic(configured)
        return [
            ExistingTopic(
                topic=self._connection.logical(topic["topic"]),
                partitions=len(topic["partitions"]),
                replication=min((len(partition["replicas"]) for partition in topic["partitions"]), default=0),
                configs=configs.get(topic["topic"], {}),
            )
            for topic in described
        ]

    async def check(self, *, partitions: int, replication: int, outcome_retention_days: int) -> list[Finding]:
        """Return how the broker's topics differ from the catalog and the settings."""
        return compare(
            await self.existing(),
            partitions=partitions,
            replication=replication,
            outcome_retention_days=outcome_retention_days,
        )

    async def _present(self) -> list[Topic]:
        try:
            names = set(await self._admin.list_topics())
        except (KafkaError, OSError) as error:
            raise self._down(error) from error
        return [spec.topic for spec in CATALOG if self._connection.wire_name(spec.topic) in names]

    def _down(self, error: BaseException) -> DependencyDown:
        return kafka_down(self._connection.bootstrap_servers, error)


def _configs_by_topic(responses: Sequence[Any]) -> dict[str, dict[str, str]]:
    """Read DescribeConfigs answers: resources are (code, message, type, name, entries of (name, value, ...))."""
    return {
        name: {entry[0]: entry[1] for entry in entries if entry[1] is not None}
        for response in responses
        for code, _, _, name, entries in response.resources
        if code == 0
    }
