"""Where an event that somebody publishes goes: topic and key."""

from schemas import conversations, memory
from schemas.address import Address, format_address
from schemas.data import Data
from schemas.envelope import Event
from schemas.errors import Rejection
from schemas.executions import SubjectRef
from schemas.registry import INBOUND, parse
from topics.catalog import Topic
from topics.codec import STRUCTURED_HEADERS, encode
from topics.records import Record

_OUTPUTS = frozenset({"activity.completed", "activity.failed"})


def route(event: Event, *, by_type: bool = False) -> tuple[Topic, bytes | None]:
    """Return the topic and key of an event, after checking its data.

    Everything of an execution goes to `execution-events`, so that its order holds; `by_type` splits activity
    outputs off to `activity-outputs`. Memory and conversation commands go to `memory-commands`.
    Raises `Rejection`: also `unknown_type` for what only workers publish.
    """
    if event.type not in INBOUND:
        # A near miss is named by parse; a type of ours that is no input is refused here.
        parse(event)
        raise Rejection("unknown_type", f"{event.type} is written by the workers; nobody else publishes it")
    data = parse(event)
    if event.subject is not None:
        topic = Topic.ACTIVITY_OUTPUTS if by_type and event.type in _OUTPUTS else Topic.EXECUTION_EVENTS
        return topic, event.subject.encode()
    return Topic.MEMORY_COMMANDS, command_key(data, event.tenant)


def record_of(event: Event, *, by_type: bool = False) -> Record:
    """Return the record that carries an event to where it belongs. Raises `Rejection`."""
    topic, key = route(event, by_type=by_type)
    return Record(topic, key, encode(event), STRUCTURED_HEADERS)


def command_key(data: Data, tenant: str) -> bytes | None:
    """Return the key of a command: the canonical address of what it works on; None for other data.

    A conversation's address has the kind `conversation`, as in `default/workflow/support/conversation/s-19/messages`.
    Raises `Rejection`: `address_invalid`, `address_too_long`.
    """
    match data:
        case (
            memory.MemoryWriteCommand()
            | memory.MemoryReadCommand()
            | memory.MemoryForgetCommand()
            | memory.MemoryUpdateCommand()
        ):
            subject = data.subject if isinstance(data.subject, SubjectRef) else None
            kind, item_id = (None, None) if subject is None else (subject.kind, subject.id)
            address = Address(tenant, data.scope, data.workflow, kind, item_id, data.key)
        case (
            conversations.ConversationAddCommand()
            | conversations.ConversationGetCommand()
            | conversations.ConversationDeleteCommand()
        ):
            address = Address(tenant, "workflow", data.workflow, "conversation", data.id, "messages")
        case conversations.ConversationGetAllCommand():
            address = Address(tenant, "workflow", data.workflow, "conversation", None, "messages")
        case _:
            return None
    return format_address(address).encode()
