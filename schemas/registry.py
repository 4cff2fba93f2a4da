"""Every event type: its data's model, the topics that accept or carry it, and `parse`.

The tables are the contract as data: the AsyncAPI document, the command line
and the workers read them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import cast

from pydantic import ValidationError

from schemas import (
    activities,
    answers,
    conditions,
    conversations,
    dead_letters,
    executions,
    loops,
    memory,
    revisions,
    scratchpad,
)
from schemas.data import Data
from schemas.envelope import Event
from schemas.errors import Rejection
from schemas.exact_json import JsonObject
from schemas.explain import explain

#: Logical topic names, as `topics.catalog.Topic` spells them.
EXECUTION_TOPICS = ("execution-events", "activity-outputs")
COMMAND_TOPIC = "memory-commands"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeSpec:
    """One event type.

    `model` is its data with an execution (`subject` is set), `command` its data on `memory-commands`;
    `answer` names the types that may answer it.
    """

    name: str
    topics: tuple[str, ...]
    model: type[Data] | None = None
    command: type[Data] | None = None
    answer: tuple[str, ...] = ()

    @property
    def models(self) -> tuple[type[Data], ...]:
        """Return every model that data of this type may have."""
        return tuple(model for model in (self.model, self.command) if model is not None)


_NODE_ANSWERS = ("node.answered", "node.skipped", "node.failed")


def _fact(name: str, model: type[Data], answer: tuple[str, ...] = ()) -> TypeSpec:
    return TypeSpec(name=name, topics=EXECUTION_TOPICS, model=model, answer=answer)


def _request(name: str, model: type[Data], answer: str) -> TypeSpec:
    return TypeSpec(name=name, topics=EXECUTION_TOPICS, model=model, answer=(answer, "node.skipped", "node.failed"))


def _durable(name: str, model: type[Data], command: type[Data]) -> TypeSpec:
    topics = (*EXECUTION_TOPICS, COMMAND_TOPIC)
    return TypeSpec(name=name, topics=topics, model=model, command=command, answer=_NODE_ANSWERS)


def _out(name: str, topic: str, model: type[Data]) -> TypeSpec:
    return TypeSpec(name=name, topics=(topic,), model=model)


def _table(*specs: TypeSpec) -> Mapping[str, TypeSpec]:
    return {spec.name: spec for spec in specs}


_FINALIZED = ("execution.finalized",)

#: What others publish.
INBOUND: Mapping[str, TypeSpec] = _table(
    _fact("execution.started", executions.ExecutionStarted),
    _fact("execution.completed", executions.ExecutionCompleted, _FINALIZED),
    _fact("execution.failed", executions.ExecutionFailed, _FINALIZED),
    _fact("execution.cancelled", executions.ExecutionCancelled, _FINALIZED),
    _request("activity.scheduled", activities.ActivityScheduled, "activity.ready"),
    _fact("activity.completed", activities.ActivityCompleted),
    _fact("activity.failed", activities.ActivityFailed),
    _fact("variables.set", activities.VariablesSet),
    _request("condition.evaluate", conditions.ConditionEvaluate, "condition.evaluated"),
    _request("parallel.join", loops.ParallelJoin, "parallel.joined"),
    _request("foreach.open", loops.ForeachOpen, "foreach.opened"),
    _request("foreach.close", loops.ForeachClose, "foreach.closed"),
    _request("scratchpad.write", scratchpad.ScratchpadKeyedRequest, "scratchpad.result"),
    _request("scratchpad.append", scratchpad.ScratchpadKeyedRequest, "scratchpad.result"),
    _request("scratchpad.read", scratchpad.ScratchpadRequest, "scratchpad.result"),
    _request("scratchpad.summarize", scratchpad.ScratchpadRequest, "scratchpad.result"),
    _request("scratchpad.clear", scratchpad.ScratchpadRequest, "scratchpad.result"),
    _durable("memory.write", memory.MemoryWriteRequest, memory.MemoryWriteCommand),
    _durable("memory.read", memory.MemoryReadRequest, memory.MemoryReadCommand),
    _durable("memory.forget", memory.MemoryForgetRequest, memory.MemoryForgetCommand),
    _durable("memory.update", memory.MemoryUpdateRequest, memory.MemoryUpdateCommand),
    _durable("conversation.add", conversations.ConversationAddRequest, conversations.ConversationAddCommand),
    _durable("conversation.get", conversations.ConversationGetRequest, conversations.ConversationGetCommand),
    _durable("conversation.get_all", conversations.ConversationGetAllRequest, conversations.ConversationGetAllCommand),
    _durable("conversation.delete", conversations.ConversationDeleteRequest, conversations.ConversationDeleteCommand),
)

#: What the workers publish and nobody else should.
INTERNAL: Mapping[str, TypeSpec] = _table(
    _out("child.completed", "execution-events", executions.ChildCompleted),
)

#: What others subscribe to.
OUTBOUND: Mapping[str, TypeSpec] = _table(
    _out("activity.ready", "node-results", activities.ActivityReady),
    _out("condition.evaluated", "node-results", conditions.ConditionEvaluated),
    _out("parallel.joined", "node-results", loops.ParallelJoined),
    _out("foreach.opened", "node-results", loops.ForeachOpened),
    _out("foreach.closed", "node-results", loops.ForeachClosed),
    _out("scratchpad.result", "node-results", scratchpad.ScratchpadResult),
    _out("node.answered", "node-results", answers.NodeAnswered),
    _out("node.skipped", "node-results", answers.NodeSkipped),
    _out("node.failed", "node-results", answers.NodeFailed),
    _out("memory.written", "memory-results", memory.MemoryWritten),
    _out("memory.updated", "memory-results", memory.MemoryUpdated),
    _out("memory.conflicted", "memory-results", memory.MemoryConflicted),
    _out("memory.found", "memory-results", memory.MemoryFound),
    _out("memory.missing", "memory-results", memory.MemoryMissing),
    _out("memory.forgotten", "memory-results", memory.MemoryForgotten),
    _out("memory.rejected", "memory-results", memory.MemoryRejected),
    _out("conversation.added", "memory-results", conversations.ConversationAdded),
    _out("conversation.got", "memory-results", conversations.ConversationGot),
    _out("conversation.listed", "memory-results", conversations.ConversationListed),
    _out("conversation.deleted", "memory-results", conversations.ConversationDeleted),
    _out("memory.conflict_detected", "memory-conflicts", memory.MemoryConflictDetected),
    _out("memory.changed", "memory-changes", memory.MemoryChanged),
    _out("variables.revised", "variable-updates", revisions.VariablesRevised),
    _out("execution.finalized", "variable-updates", executions.ExecutionFinalized),
    _out("record.dead_lettered", "dead-letters", dead_letters.DeadLettered),
)

ALL_TYPES: Mapping[str, TypeSpec] = {**INBOUND, **INTERNAL, **OUTBOUND}

#: Types that ask for one answer on `node-results` when they come with an execution.
REQUEST_TYPES: frozenset[str] = frozenset(
    name for name, spec in INBOUND.items() if spec.answer and spec.answer != _FINALIZED
)
#: Types that only mean something within an execution.
EXECUTION_TYPES: frozenset[str] = frozenset(name for name, spec in INBOUND.items() if spec.command is None)
#: The outcomes of memory and conversation commands.
OUTCOME_TYPES: frozenset[str] = frozenset(name for name, spec in OUTBOUND.items() if spec.topics == ("memory-results",))
_NEED_SUBJECT = EXECUTION_TYPES | INTERNAL.keys()
_COMMANDS = {name: spec.command for name, spec in INBOUND.items() if spec.command is not None}
_MODELS = {name: spec.model for name, spec in ALL_TYPES.items() if spec.model is not None}


def parse(event: Event) -> Data:
    """Return the typed data of an event, exact numbers untouched.

    A memory or conversation type is a request where the event has a `subject`, a command where it has none.
    Raises `Rejection`: `unknown_type`, `subject_required`, `data_invalid`.
    """
    if event.subject is None:
        if event.type in _NEED_SUBJECT:
            raise Rejection(
                "subject_required", f"{event.type} belongs to an execution; set the attribute subject to its id"
            )
        model = _COMMANDS.get(event.type) or _MODELS.get(event.type)
    else:
        model = _MODELS.get(event.type)
    if model is None:
        raise _unknown(event.type, INBOUND)
    return _validated(model, event.type, event.data)


def parse_command(event: Event) -> Data:
    """Return the data of an event on `memory-commands`: a command, whatever its `subject`.

    Raises `Rejection`: `unknown_type`, `data_invalid`.
    """
    model = _COMMANDS.get(event.type)
    if model is None:
        raise _unknown(event.type, _COMMANDS)
    return _validated(model, event.type, event.data)


def data_of(data: Data) -> JsonObject:
    """Return what `parse` would read back as `data`: the fields that were given, nothing else."""
    return cast("JsonObject", data.model_dump(exclude_unset=True))


def _validated(model: type[Data], event_type: str, data: JsonObject) -> Data:
    try:
        validated: Data = model.__pydantic_validator__.validate_python(data)
    except ValidationError as error:
        raise Rejection("data_invalid", explain(error, event_type, model)) from None
    return validated


def _unknown(event_type: str, known: Mapping[str, object]) -> Rejection:
    near = get_close_matches(event_type, known, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are: {', '.join(sorted(known))}"
    return Rejection("unknown_type", f"the type {event_type[:80]!r} is not accepted here; {hint}")
