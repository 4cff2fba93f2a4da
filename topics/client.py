"""The Python client: publish events, await outcomes, use durable memory and conversations, watch what happens.

    async with Client("127.0.0.1:9092", source="/my/app") as tally:
        await tally.write("stage", "checked", type="String", subject=("case", "c-7"), scope="shared")

Outcomes cannot be missed: each client has a reply key of its own and reads its partition from before its first
command; answers of executions are read from before the first request that this client publishes.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self, TypeAlias, cast, overload
from uuid import uuid4

from schemas.data import Data
from schemas.envelope import DEFAULT_TENANT, Event
from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue
from schemas.executions import ExecutionFinalized
from schemas.memory import (
    MemoryConflictDetected,
    MemoryConflicted,
    MemoryForgotten,
    MemoryFound,
    MemoryMissing,
    MemoryRejected,
    MemoryUpdated,
    MemoryWritten,
    Operation,
    Scope,
)
from schemas.registry import REQUEST_TYPES, parse
from schemas.revisions import VariablesRevised
from topics.catalog import Topic
from topics.connection import KafkaConnection
from topics.conversations import Conversations
from topics.publisher import Publisher
from topics.replies import Replies, outcome_as
from topics.routing import record_of
from topics.subscriber import Start, Subscriber

Subject: TypeAlias = tuple[str, str] | Literal["workflow-global"]
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Update:
    """What happened to an execution's store: one revision, or its end."""

    execution_id: str
    tenant: str
    data: VariablesRevised | ExecutionFinalized


class Client:
    """A publisher and a reader of outcomes; one for each program is enough.

    Every method that talks to Kafka raises `DependencyDown`. Values are JSON with exact numbers: write
    `Decimal("100.00")` where the spelling matters.
    """

    def __init__(
        self,
        kafka: KafkaConnection | str,
        *,
        source: str,
        tenant: str = DEFAULT_TENANT,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        """`kafka` is a bootstrap address or a whole connection; `source` is the CloudEvents source of our events."""
        self._connection = KafkaConnection(bootstrap_servers=kafka) if isinstance(kafka, str) else kafka
        self._source = source
        self._tenant = tenant
        self._timeout_s = timeout_s
        self._publisher = Publisher(self._connection, "tally-client")
        self._reply_key = f"client-{uuid4()}"
        self._replies = Replies(self._connection, self._publisher, self._reply_key)

    async def __aenter__(self) -> Self:
        """Connect, and begin to read outcomes."""
        await self._publisher.start()
        try:
            await self._replies.start()
        except BaseException:
            await self._publisher.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._replies.stop()
        await self._publisher.stop()

    def event(
        self, event_type: str, data: JsonObject, *, subject: str | None = None, event_id: str | None = None
    ) -> Event:
        """Build an event of ours; `subject` is the execution id. Give an `event_id` to publish it again safely."""
        return Event(
            id=event_id or str(uuid4()),
            source=self._source,
            type=event_type,
            subject=subject,
            tenant=self._tenant,
            replykey=self._reply_key if subject is None else None,
            data=data,
        )

    async def publish(self, *events: Event) -> None:
        """Check and send events in their order; return when all are acknowledged.

        Raises `Rejection` before anything is sent.
        """
        records = [record_of(event) for event in events]
        for event in events:
            if event.type in REQUEST_TYPES:
                await self._replies.expect(event)
        await self._publisher.publish(records)

    async def await_outcome(self, event_id: str, timeout_s: float | None = None) -> Event:
        """Return the one outcome of a command, or answer of a request, that this client published.

        Raises `DependencyDown` when none comes in time, and `UsageError` for an id that was not published here.
        """
        return await self._replies.wait(event_id, self._source, self._timeout_s if timeout_s is None else timeout_s)

    async def ask(self, event: Event, timeout_s: float | None = None) -> Event:
        """Publish a command or request and return its outcome."""
        await self.publish(event)
        return await self._replies.wait(event.id, event.source, self._timeout_s if timeout_s is None else timeout_s)

    async def write(
        self,
        key: str,
        value: JsonValue,
        *,
        type: str,  # noqa: A002 - the field's own name
        subject: Subject,
        scope: Scope = "workflow",
        workflow: str | None = None,
        expected_version: int | None = None,
        ttl_seconds: int | Literal["keep"] | None = None,
        on_conflict: Literal["fail", "merge"] = "fail",
        read_version: int | None = None,
        writer: JsonObject | None = None,
    ) -> MemoryWritten | MemoryConflicted:
        """Write a value; with `expected_version` only if the item still has it (0: nothing is stored yet).

        A conflict is a result. An unconditional write says with `read_version` what it was made from: where another
        version was stored since, the lost update is reported. Raises `Rejection` when the command is refused.
        """
        data: JsonObject = {**_address(key, subject, scope, workflow), "type": type, "value": value}
        if expected_version is not None:
            data["expected_version"] = expected_version
            data["on_conflict"] = on_conflict
        if read_version is not None:
            data["read_version"] = read_version
        data.update(_retention(ttl_seconds))
        if writer is not None:
            data["writer"] = writer
        found = await self._outcome("memory.write", data)
        return found if isinstance(found, MemoryConflicted) else outcome_as(MemoryWritten, found)

    async def read(
        self,
        key: str,
        *,
        type: str,  # noqa: A002 - the field's own name
        subject: Subject,
        scope: Scope = "workflow",
        workflow: str | None = None,
    ) -> MemoryFound | MemoryMissing:
        """Read a value as `type`. Raises `Rejection`, as when the stored value cannot be read so."""
        found = await self._outcome("memory.read", {**_address(key, subject, scope, workflow), "type": type})
        return found if isinstance(found, MemoryMissing) else outcome_as(MemoryFound, found)

    @overload
    async def forget(
        self, key: str, *, subject: Subject, scope: Scope = "workflow", workflow: str | None = None
    ) -> MemoryForgotten: ...

    @overload
    async def forget(
        self,
        key: str,
        *,
        subject: Subject,
        scope: Scope = "workflow",
        workflow: str | None = None,
        expected_version: int,
    ) -> MemoryForgotten | MemoryConflicted: ...

    async def forget(
        self,
        key: str,
        *,
        subject: Subject,
        scope: Scope = "workflow",
        workflow: str | None = None,
        expected_version: int | None = None,
    ) -> MemoryForgotten | MemoryConflicted:
        """Forget a value and its history; with `expected_version` only that version."""
        data = _address(key, subject, scope, workflow)
        if expected_version is not None:
            data["expected_version"] = expected_version
        found = await self._outcome("memory.forget", data)
        return found if isinstance(found, MemoryConflicted) else outcome_as(MemoryForgotten, found)

    async def increment(
        self,
        key: str,
        by: JsonValue = 1,
        *,
        subject: Subject,
        type: str = "Integer",  # noqa: A002 - the field's own name
        scope: Scope = "workflow",
        workflow: str | None = None,
        ttl_seconds: int | Literal["keep"] | None = None,
    ) -> MemoryUpdated:
        """Add to a number where it is: no version, no retry loop."""
        return await self.update(
            key,
            "increment",
            {"by": by},
            type=type,
            subject=subject,
            scope=scope,
            workflow=workflow,
            ttl_seconds=ttl_seconds,
        )

    async def update(
        self,
        key: str,
        operation: Operation,
        fields: JsonObject,
        *,
        type: str,  # noqa: A002 - the field's own name
        subject: Subject,
        scope: Scope = "workflow",
        workflow: str | None = None,
        ttl_seconds: int | Literal["keep"] | None = None,
        read_version: int | None = None,
    ) -> MemoryUpdated:
        """Change a value where it is; `fields` are the operation's: `by`, or `value` and `max_items`.

        `read_version` is for `merge_patch`: the version that the patch was made from, as in `write`.
        """
        data = _address(key, subject, scope, workflow)
        data.update({"type": type, "operation": operation, **fields, **_retention(ttl_seconds)})
        if read_version is not None:
            data["read_version"] = read_version
        return outcome_as(MemoryUpdated, await self._outcome("memory.update", data))

    def conversations(self, workflow: str) -> Conversations:
        """Return the conversation records of a workflow."""
        return Conversations(workflow, self._outcome)

    async def conflicts(self, start: Start = "end") -> AsyncIterator[MemoryConflictDetected]:
        """Yield every race of this tenant, as it is detected."""
        async with Subscriber(self._connection, [Topic.MEMORY_CONFLICTS], start=start) as subscriber:
            async for received in subscriber:
                if received.event is not None and received.event.tenant == self._tenant:
                    yield outcome_as(MemoryConflictDetected, received.data)

    async def updates(self, execution_id: str | None = None, start: Start = "end") -> AsyncIterator[Update]:
        """Yield the revisions and ends of this tenant's executions, or of one."""
        async with Subscriber(self._connection, [Topic.VARIABLE_UPDATES], start=start) as subscriber:
            async for received in subscriber:
                event = received.event
                if event is None or event.subject is None or event.tenant != self._tenant:
                    continue
                if execution_id is None or event.subject == execution_id:
                    data = cast("VariablesRevised | ExecutionFinalized", received.data)
                    yield Update(event.subject, event.tenant, data)

    async def _outcome(self, event_type: str, data: JsonObject) -> Data:
        outcome = await self.ask(self.event(event_type, data))
        found = parse(outcome)
        if isinstance(found, MemoryRejected):
            raise Rejection(found.code, found.message)
        return found


def _address(key: str, subject: Subject, scope: Scope, workflow: str | None) -> JsonObject:
    data: JsonObject = {"scope": scope, "key": key}
    data["subject"] = subject if isinstance(subject, str) else {"kind": subject[0], "id": subject[1]}
    if workflow is not None:
        data["workflow"] = workflow
    return data


def _retention(ttl_seconds: int | Literal["keep"] | None) -> JsonObject:
    if ttl_seconds is None:
        return {}
    return {"ttl": "keep"} if ttl_seconds == "keep" else {"ttl": ttl_seconds, "ttl_unit": "seconds"}
