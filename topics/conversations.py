"""The client's face of conversation records: lists of messages by an id, private to a workflow.

talks = tally.conversations("support")
await talks.add("chat-7", "user", "Is my permit ready?")
newest = await talks.get("chat-7", limit=10, sort_order="desc")
"""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from schemas.conversations import (
    ConversationAdded,
    ConversationDeleted,
    ConversationGot,
    ConversationListed,
    Role,
    SortOrder,
)
from schemas.data import Data
from schemas.exact_json import JsonObject, JsonValue
from topics.replies import outcome_as

#: Type and data of a command -> its outcome; raises `Rejection` when it is refused.
Command: TypeAlias = Callable[[str, JsonObject], Awaitable[Data]]


class Conversations:
    """The records of one workflow. Every method raises `DependencyDown`, and `Rejection` when it is refused."""

    def __init__(self, workflow: str, command: Command) -> None:
        self._workflow = workflow
        self._command = command

    async def add(
        self,
        record_id: str,
        role: Role,
        content: str | list[JsonValue] | JsonObject,
    ) -> ConversationAdded:
        """Append a message to a record, which begins with it; return the record, its newest 256 KiB at most."""
        found = await self._ask("add", id=record_id, role=role, content=content)
        return outcome_as(ConversationAdded, found)

    async def get(
        self,
        record_id: str,
        *,
        limit: int | None = None,
        sort_order: SortOrder = "asc",
    ) -> ConversationGot:
        """Return a record's messages, oldest first or newest first; the limit applies after sorting."""
        return outcome_as(ConversationGot, await self._ask("get", id=record_id, limit=limit, sort_order=sort_order))

    async def get_all(
        self, *, limit: int | None = None, sort_order: SortOrder = "asc", filter_type: Role | None = None
    ) -> ConversationListed:
        """Return the workflow's records by their last message, with `filter_type` only the messages of that role."""
        found = await self._ask("get_all", limit=limit, sort_order=sort_order, filter_type=filter_type)
        return outcome_as(ConversationListed, found)

    async def delete(self, record_id: str) -> ConversationDeleted:
        """Remove a record; `success` is false when there was none."""
        return outcome_as(ConversationDeleted, await self._ask("delete", id=record_id))

    async def _ask(self, operation: str, **fields: JsonValue) -> Data:
        said = {name: value for name, value in fields.items() if value is not None}
        return await self._command(f"conversation.{operation}", {"workflow": self._workflow, **said})
