"""Conversation records: append-only lists of messages."""

from typing import Annotated, Literal

from pydantic import Field

from schemas.data import Data, Expected, Json, LongText, NodeRequest, Object, Outbound, Text

Role = Literal["user", "assistant", "system"]
SortOrder = Literal["asc", "desc"]
Limit = Annotated[int, Field(ge=1)]
Content = Annotated[LongText | list[Json] | Object, Expected("a text, or the parts of a message")]


class _AddFields(Data):
    id: LongText
    role: Role
    content: Content


class _GetFields(Data):
    id: LongText
    limit: Limit | None = None
    sort_order: SortOrder = "asc"


class _GetAllFields(Data):
    limit: Limit | None = None
    sort_order: SortOrder = "asc"
    filter_type: Role | None = None


class _DeleteFields(Data):
    id: LongText


class _Command(Data):
    workflow: LongText


class _Request(NodeRequest):
    #: The run's own workflow; it may be said, but not changed.
    workflow: Text | None = None


class ConversationAddCommand(_Command, _AddFields):
    """Append one message to the record, which begins with it."""


class ConversationGetCommand(_Command, _GetFields):
    """Read one record's messages; `limit` applies after sorting."""


class ConversationGetAllCommand(_Command, _GetAllFields):
    """List the workflow's records."""


class ConversationDeleteCommand(_Command, _DeleteFields):
    """Remove a record."""


class ConversationAddRequest(_Request, _AddFields):
    """`conversation.add` of an execution; `id` and `content` may be templates."""


class ConversationGetRequest(_Request, _GetFields):
    """`conversation.get` of an execution."""


class ConversationGetAllRequest(_Request, _GetAllFields):
    """`conversation.get_all` of an execution."""


class ConversationDeleteRequest(_Request, _DeleteFields):
    """`conversation.delete` of an execution."""


class Message(Outbound):
    """One entry of a record."""

    role: Role
    content: Json


class ConversationRecord(Outbound):
    """One record with its messages, as `conversation.listed` gives it."""

    key: str
    type: str = "agent"
    data: list[Message]
    created_at: str
    updated_at: str


class ConversationOutcome(Outbound):
    """`address` is the record's canonical address, or the workflow's for `conversation.listed`."""

    command_id: str
    command_source: str
    address: str | None = None
    success: bool = True
    error: str | None = None


class ConversationAdded(ConversationOutcome):
    """The record with the new message; `memories` holds at most 256 KiB, newest kept."""

    memories: list[Message]
    count: int
    truncated: bool = False


class ConversationGot(ConversationOutcome):
    """`count` messages of `total_count`."""

    memories: list[Message]
    count: int
    total_count: int
    limit: int | None = None
    sort_order: SortOrder
    message: str
    truncated: bool = False


class ConversationListed(ConversationOutcome):
    """`count` records after filtering of `total` before it."""

    memories: list[ConversationRecord]
    count: int
    total: int
    message: str
    truncated: bool = False


class ConversationDeleted(ConversationOutcome):
    """`success` is false when there was nothing to remove."""

    message: str
