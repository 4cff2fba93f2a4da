"""Event on `memory-commands` -> command: complete, typed, its value checked and measured."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from uuid import UUID

from msgspec import UNSET, Struct

from schemas.address import Address, Scope, format_address
from schemas.conversations import (
    ConversationAddCommand,
    ConversationDeleteCommand,
    ConversationGetAllCommand,
    ConversationGetCommand,
)
from schemas.data import Data
from schemas.envelope import Event
from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue, dumps
from schemas.identity import content_digest, key_of
from schemas.limits import DEFAULT_LIMITS, Limits
from schemas.memory import (
    MemoryForgetCommand,
    MemoryReadCommand,
    MemoryUpdateCommand,
    MemoryWriteCommand,
    Operation,
)
from schemas.plain import PlainWrite, plain_write
from schemas.registry import parse_command
from workers.logic.memory.conversations import record_address, records_address, records_prefix
from workers.logic.memory.retention import Retention, retention_of
from workers.logic.memory.types import TypeRegistry


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the rules take from outside: limits, and what plug-ins registered."""

    limits: Limits = DEFAULT_LIMITS
    types: TypeRegistry = field(default_factory=TypeRegistry)


class Write(Struct, frozen=True):
    """Store a value; `expected` makes it conditional. `body` is the value as compact JSON."""

    value: JsonValue
    body: bytes
    type: str
    retention: Retention
    expected: int | None
    merges: bool
    read_version: int | None


class Read(Struct, frozen=True):
    """Read a value as `type`."""

    type: str


class Forget(Struct, frozen=True):
    """Remove a value; `expected` makes it conditional."""

    expected: int | None


class Update(Struct, frozen=True):
    """Change a value where it is."""

    operation: Operation
    type: str
    #: `by` of an increment, `value` of the others.
    operand: JsonValue
    max_items: int | None
    retention: Retention
    expected: int | None
    #: Of a merge patch alone: the others are made of what is stored now, so they replace nothing unseen.
    read_version: int | None


class AddMessage(Struct, frozen=True):
    """Append to a conversation record."""

    message: JsonObject


class GetMessages(Struct, frozen=True):
    """Read a conversation record."""

    limit: int | None
    sort_order: Literal["asc", "desc"]


class ListRecords(Struct, frozen=True):
    """List a workflow's conversation records: the addresses that start with `prefix`."""

    prefix: str
    limit: int | None
    sort_order: Literal["asc", "desc"]
    role: str | None


class DeleteRecord(Struct, frozen=True):
    """Remove a conversation record."""


class Broken(Struct, frozen=True):
    """A command that breaks a rule whatever is stored: its outcome is `memory.rejected`."""

    code: str
    message: str


Request: TypeAlias = Write | Read | Forget | Update | AddMessage | GetMessages | ListRecords | DeleteRecord | Broken


class Command(Struct, frozen=True):
    """One command. `address` is None only when it is broken in a way that leaves its item unnamed."""

    key: UUID
    digest: bytes
    event: Event
    address: str | None
    #: JSON of who commands it.
    writer: bytes
    request: Request

    @property
    def needs_row(self) -> bool:
        """Whether the command may write, so that its address must have a row."""
        return isinstance(self.request, (Write, Update, AddMessage))

    @property
    def may_change(self) -> bool:
        """Whether the command may change its item, so that its row is locked where others work on it too."""
        return isinstance(self.request, (Write, Update, AddMessage, Forget, DeleteRecord))


def understand(event: Event, rules: Rules) -> Command:
    """Return the command that `event` is.

    A rule that it breaks becomes a `Broken` request, where there is an item or a sender to answer to. Raises
    `Rejection` for what cannot be answered: an unknown type, or no address and nobody who waits.
    """
    try:
        data = plain_write(event) or parse_command(event)
    except Rejection as refusal:
        if refusal.reason == "unknown_type":
            raise
        return _broken(event, _address_in(event), refusal)
    try:
        address = _address_of(event.tenant, data)
    except Rejection as refusal:
        return _broken(event, None, refusal)
    try:
        request = _request_of(event.tenant, data, rules)
    except Rejection as refusal:
        return _broken(event, address, refusal)
    return Command(key_of(event), content_digest(event), event, address, _writer_of(event), request)


def _broken(event: Event, address: str | None, refusal: Rejection) -> Command:
    if address is None and event.subject is None and event.replykey is None:
        raise refusal
    request = Broken(refusal.reason, refusal.message)
    return Command(key_of(event), content_digest(event), event, address, _writer_of(event), request)


def _writer_of(event: Event) -> bytes:
    """Return who commands, as JSON: an execution (its subject, where `writer` does not say), else the command itself.

    It is kept with the version, so that who belongs to no execution can be told apart when the outcome is long gone.
    """
    named = event.data.get("writer")
    writer = {name: value for name, value in named.items() if value is not None} if isinstance(named, dict) else {}
    if "execution_id" not in writer:
        if event.subject is not None:
            writer["execution_id"] = event.subject
        else:
            writer["command_id"] = event.id
            writer["command_source"] = event.source
    return dumps(writer)


def item_address(tenant: str, *, scope: Scope, workflow: str | None, subject: tuple[str, str] | None, key: str) -> str:
    """Return the canonical address of an item; `subject` is (kind, id), None for workflow-global.

    Raises `Rejection`: `workflow_required`, `address_invalid`, `address_too_long`.
    """
    if scope == "workflow" and workflow is None:
        raise Rejection("workflow_required", "scope workflow needs the workflow's name; add workflow")
    if scope == "shared" and workflow is not None:
        raise Rejection("workflow_required", f"scope shared belongs to no workflow, {workflow!r} came; leave it out")
    kind, item_id = subject or (None, None)
    return format_address(Address(tenant, scope, workflow, kind, item_id, key))


def _address_of(tenant: str, data: Data | PlainWrite) -> str:
    match data:
        case PlainWrite() | MemoryWriteCommand() | MemoryReadCommand() | MemoryForgetCommand() | MemoryUpdateCommand():
            subject = data.subject
            pair = None if isinstance(subject, str) else (subject.kind, subject.id)
            return item_address(tenant, scope=data.scope, workflow=data.workflow, subject=pair, key=data.key)
        case ConversationAddCommand() | ConversationGetCommand() | ConversationDeleteCommand():
            return record_address(tenant, data.workflow, data.id)
        case ConversationGetAllCommand():
            return records_address(tenant, data.workflow)
        case _:
            raise AssertionError(f"{type(data).__name__} is no command")


def _address_in(event: Event) -> str | None:
    """Return the address that data names although the rest of it is wrong, or None."""
    data = event.data
    try:
        if event.type.startswith("conversation."):
            return record_address(event.tenant, _text(data, "workflow"), _text(data, "id"))
        scope: Scope = "shared" if data.get("scope") == "shared" else "workflow"
        if data.get("scope") != scope:
            return None
        workflow = _text(data, "workflow") if data.get("workflow") is not None else None
        subject = data.get("subject")
        pair = (_text(subject, "kind"), _text(subject, "id")) if isinstance(subject, dict) else None
        if pair is None and subject != "workflow-global":
            return None
        return item_address(event.tenant, scope=scope, workflow=workflow, subject=pair, key=_text(data, "key"))
    except Rejection:
        # The caller answers with what was wrong first.
        return None


def _text(data: JsonObject, name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        raise Rejection("address_invalid", f"{name} is not a text")
    return value


def _request_of(tenant: str, data: Data | PlainWrite, rules: Rules) -> Request:
    match data:
        case PlainWrite():
            version = data.expected_version
            return _write(data, None if version is UNSET else version, rules)
        case MemoryWriteCommand():
            return _write(data, _expected(data), rules)
        case MemoryReadCommand():
            rules.types.require(data.type)
            return Read(data.type)
        case MemoryForgetCommand():
            return Forget(_expected(data))
        case MemoryUpdateCommand():
            return _update(data, rules)
        case ConversationAddCommand():
            return AddMessage({"role": data.role, "content": data.content})
        case ConversationGetCommand():
            return GetMessages(data.limit, data.sort_order)
        case ConversationGetAllCommand():
            prefix = records_prefix(tenant, data.workflow)
            return ListRecords(prefix, data.limit, data.sort_order, data.filter_type)
        case ConversationDeleteCommand():
            return DeleteRecord()
        case _:
            raise AssertionError(f"{type(data).__name__} is no command")


def _expected(data: MemoryWriteCommand | MemoryUpdateCommand | MemoryForgetCommand) -> int | None:
    """Return the expected version of a conditional command, None for an unconditional one.

    A conditional command without its version is refused, never made unconditional (seed 003). A text that a
    template left behind counts as the number it spells.
    """
    version = data.expected_version
    if isinstance(version, int):
        return version
    if not data.is_conditional:
        return None
    text = "" if version is None else version.strip()
    if not text:
        raise Rejection(
            "expected_version_required",
            "the command is conditional and expected_version came out empty; wire the reader's version into it",
        )
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise Rejection("expected_version_invalid", f"expected_version {text[:40]!r} is not a whole number from 0")
    return int(text)


def _write(data: MemoryWriteCommand | PlainWrite, expected: int | None, rules: Rules) -> Write:
    rules.types.check(data.value, data.type)
    body = measured(data.value, rules.limits)
    retention = retention_of(data.ttl, data.ttl_unit, rules.limits)
    return Write(data.value, body, data.type, retention, expected, data.on_conflict == "merge", data.read_version)


def _update(data: MemoryUpdateCommand, rules: Rules) -> Update:
    rules.types.require(data.type)
    retention = retention_of(data.ttl, data.ttl_unit, rules.limits)
    given = data.model_fields_set
    if data.operation == "increment":
        if "value" in given or "max_items" in given:
            raise Rejection("operation_invalid", "increment takes by, neither value nor max_items")
        operand: JsonValue = data.by if "by" in given else 1
    else:
        if "value" not in given or "by" in given:
            raise Rejection("operation_invalid", f"{data.operation} takes value, not by")
        operand = data.value
    if data.max_items is not None and data.operation != "append":
        raise Rejection("operation_invalid", f"max_items belongs to append, not to {data.operation}")
    seen = data.read_version if data.operation == "merge_patch" else None
    return Update(data.operation, data.type, operand, data.max_items, retention, _expected(data), seen)


def measured(value: JsonValue, limits: Limits) -> bytes:
    """Return a value as compact JSON. Raises `Rejection` (`value_too_large`)."""
    body = dumps(value)
    if len(body) > limits.memory_value_bytes:
        raise Rejection(
            "value_too_large",
            f"the value has {len(body)} bytes of compact JSON, {limits.memory_value_bytes} are allowed; "
            "keep documents elsewhere and store a reference",
        )
    return body
