"""Drives the pure fold as the worker does: each event on a state that was loaded from committed entries."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from schemas import registry
from schemas.envelope import Event
from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue
from schemas.limits import DEFAULT_LIMITS, Limits
from workers.logic.variables import fold
from workers.logic.variables.references import Missing
from workers.logic.variables.state import ExecutionKey, ExecutionState
from workers.logic.variables.step import Context, ForkSource, Outgoing, RealMemory

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@dataclass
class Run:
    """One execution. `entries` is what PostgreSQL and the table would hold after each event."""

    execution_id: str = "run-1"
    tenant: str = "default"
    limits: Limits = DEFAULT_LIMITS
    entries: dict[str, bytes] = field(default_factory=dict)
    head: bytes | None = None
    revisions: list[fold.Revision] = field(default_factory=list)
    sent: list[Outgoing] = field(default_factory=list)
    fork: ForkSource | None = None
    memory: RealMemory | None = None
    count: int = 0

    @property
    def state(self) -> ExecutionState:
        return ExecutionState.load(ExecutionKey(self.tenant, self.execution_id), self.head, dict(self.entries))

    def event(self, event_type: str, data: Mapping[str, JsonValue], event_id: str | None = None) -> Event:
        self.count += 1
        return Event(
            id=event_id or f"{self.execution_id}-{self.count}",
            source="/engine",
            type=event_type,
            subject=self.execution_id,
            tenant=self.tenant,
            data=dict(data),
        )

    def apply(self, event: Event) -> fold.Revision | None:
        """Apply one event to a freshly loaded state and commit what it changed; all that it sends is told as one."""
        state = self.state
        if event.type not in registry.OUTCOME_TYPES:
            registry.parse(event)
        context = Context(NOW, self.limits, self.fork, self.memory)
        first = revision = fold.apply(state, event, context=context)
        if revision is None or first is None:
            return None
        outgoing = list(revision.outgoing)
        self._commit(state, revision)
        while revision.rest is not None:
            state = self.state
            revision = fold.go_on(state, context=context)
            outgoing += revision.outgoing
            self._commit(state, revision)
        return first._replace(outgoing=tuple(outgoing))

    def _commit(self, state: ExecutionState, revision: fold.Revision) -> None:
        for entry, data in revision.changes.items():
            if data is None:
                self.entries.pop(entry, None)
            else:
                self.entries[entry] = data
        self.head = state.head
        self.revisions.append(revision)
        self.sent.extend(revision.outgoing)

    def say(self, event_type: str, **data: JsonValue) -> list[Event]:
        """Publish an event of the engine; return what it sent."""
        revision = self.apply(self.event(event_type, data))
        assert revision is not None
        return [outgoing.event for outgoing in revision.outgoing]

    def refuse(self, event_type: str, **data: JsonValue) -> str:
        """Publish an event that must be refused; return the code."""
        before = (self.head, dict(self.entries))
        try:
            self.apply(self.event(event_type, data))
        except Rejection as rejection:
            assert (self.head, self.entries) == before
            return rejection.reason
        raise AssertionError(f"{event_type} was accepted")

    def outcome(self, command: Event, event_type: str, **data: JsonValue) -> list[Event]:
        """Give the outcome of a command that the run has sent."""
        self.count += 1
        body: JsonObject = {"command_id": command.id, "command_source": command.source, "address": "a", **data}
        event = Event(
            id=f"outcome-{command.id}",
            source="/tallystick/memory",
            type=event_type,
            subject=self.execution_id,
            tenant=self.tenant,
            data=body,
        )
        revision = self.apply(event)
        return [] if revision is None else [outgoing.event for outgoing in revision.outgoing]

    def start(self, **data: JsonValue) -> list[Event]:
        return self.say("execution.started", **{"workflow": {"name": "flow"}, **data})

    def output(self, activity_id: str, output: JsonValue, **data: JsonValue) -> list[Event]:
        return self.say("activity.completed", activity_id=activity_id, output=output, **data)

    def value(self, path: str) -> JsonValue | Missing:
        return self.state.lookup("", tuple(path.split(".")))

    def variables(self) -> JsonObject:
        found = self.state.all_variables()
        return {name: value for name, value in found.items() if name not in ("input", "system")}

    def ready(self, inputs: JsonObject, activity_id: str = "probe", **data: JsonValue) -> JsonValue:
        """Ask for an activity's inputs now, and end that activity."""
        (answer,) = self.say("activity.scheduled", activity_id=activity_id, inputs=inputs, **data)
        self.say(
            "activity.failed",
            activity_id=activity_id,
            error="probe",
            **{key: value for key, value in data.items() if key == "iteration"},
        )
        assert answer.type == "activity.ready", answer
        return answer.data["inputs"]


def of_type(events: list[Event], event_type: str) -> list[Event]:
    return [event for event in events if event.type == event_type]
