"""The Faust application: one stream over the three input topics, one table, nothing declared at import."""

import tempfile
from collections.abc import Awaitable, Callable
from typing import cast

import faust
from faust.types import StreamT

from topics.catalog import Topic
from topics.connection import METADATA_AGE_MS, KafkaConnection
from workers.settings import Settings
from workers.variables.driver import Assignor, Fetch, Transport
from workers.variables.table import ExecutionTable

#: With the table's name the changelog is called as Faust wants it: `{app id}-{table}-changelog`.
_TABLE = "executions"
_HEARTBEATS_PER_SESSION = 3
#: The batches of a fetch overlap: one is understood, one committed, one published.
_BATCHES_PER_FETCH = 20
#: Bounds what is handed out again after a kill; each commit is one small request.
_COMMIT_INTERVAL_S = 0.5
#: Faust refuses a request time-out below the session time-out.
_REQUEST_TIMEOUT_S = 90.0
#: A batch waits in place while PostgreSQL is down: that must not look like a dead worker.
_MAX_POLL_INTERVAL_S = 24 * 3600.0

Handle = Callable[[Fetch], Awaitable[None]]


class VariablesApp(faust.App):
    """A Faust app that keeps no files."""

    def _create_directories(self) -> None:
        """Make no data directory: the table lives in memory."""


def build_app(settings: Settings) -> VariablesApp:
    """Describe the application; it connects when it starts."""
    connection = settings.kafka()
    app = VariablesApp(
        group_of(settings),
        broker=[f"kafka://{server.strip()}" for server in connection.bootstrap_servers.split(",")],
        broker_credentials=_credentials(connection),
        # At least once: PostgreSQL knows what was applied. Faust's exactly_once is neither (see ARCHITECTURE.md).
        processing_guarantee="at_least_once",
        broker_session_timeout=settings.kafka_session_timeout_s,
        broker_heartbeat_interval=settings.kafka_session_timeout_s / _HEARTBEATS_PER_SESSION,
        broker_rebalance_timeout=max(60.0, settings.kafka_session_timeout_s),
        broker_request_timeout=max(_REQUEST_TIMEOUT_S, settings.kafka_session_timeout_s),
        broker_max_poll_interval=_MAX_POLL_INTERVAL_S,
        broker_max_poll_records=_BATCHES_PER_FETCH * settings.batch_size,
        broker_commit_interval=_COMMIT_INTERVAL_S,
        consumer_auto_offset_reset="earliest",
        consumer_metadata_max_age_ms=METADATA_AGE_MS,
        key_serializer="raw",
        value_serializer="raw",
        store="memory://",
        datadir=tempfile.gettempdir(),
        # Standbys of a memory store are dropped at a rebalance.
        table_standby_replicas=0,
        # A changelog that was made anew ends before what the table includes: that is no reason to stop.
        recovery_consistency_check=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        stream_wait_empty=True,
        web_enabled=False,
        PartitionAssignor=Assignor,
    )
    app.transport = Transport(app.conf.broker_consumer, app)
    return app


def group_of(settings: Settings) -> str:
    """Return the consumer group, which is the app's id too."""
    return f"{settings.topic_prefix}variables"


def register(app: VariablesApp, settings: Settings, handle: Handle) -> ExecutionTable:
    """Three input topics -> `handle`, one fetch at a time; return the table of live executions."""
    connection = settings.kafka()
    topic = app.topic(
        *(
            connection.wire_name(name)
            for name in (Topic.EXECUTION_EVENTS, Topic.ACTIVITY_OUTPUTS, Topic.MEMORY_RESULTS)
        ),
        key_type=bytes,
        value_type=bytes,
        key_serializer="raw",
        value_serializer="raw",
    )
    table = ExecutionTable(app, name=_TABLE, key_type=bytes, value_type=bytes)
    app.tables.add(table)
    assert table.changelog_topic_name == connection.wire_name(Topic.EXECUTIONS_TABLE), "the catalog names the changelog"

    async def variables(stream: StreamT[bytes]) -> None:
        async for event in stream.events():
            await handle(cast("Fetch", event.message))

    app.agent(topic, name="variables", concurrency=1)(variables)
    return table


def _credentials(connection: KafkaConnection) -> faust.types.auth.CredentialsT | None:
    if connection.security_protocol.startswith("SASL"):
        return faust.SASLCredentials(
            username=connection.sasl_username,
            password=connection.sasl_password,
            ssl_context=connection.ssl_context,
            mechanism=connection.sasl_mechanism,
        )
    if connection.ssl_context is not None:
        return faust.SSLCredentials(connection.ssl_context)
    return None
