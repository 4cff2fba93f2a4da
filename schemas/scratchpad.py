"""The per-run scratchpad (a Memory Manager node).

One form holds the fields of all operations, as its editor does: each operation uses what it needs.
"""

from typing import Annotated, Literal

from pydantic import Field

from schemas.data import Answer, Json, NodeRequest, Text
from schemas.limits import DEFAULT_LIMITS

MaxItems = Annotated[int, Field(ge=1, le=DEFAULT_LIMITS.scratchpad_max_items)]


class ScratchpadRequest(NodeRequest):
    """`scratchpad.read`, `.summarize` and `.clear`: without `key` they mean the whole namespace.

    An empty namespace is `default`; null and `""` count as absent everywhere.
    """

    namespace: str | None = None
    key: str | None = None
    value: Json = None
    input_key: str | None = None
    max_items: MaxItems | None = None
    summary_key: str | None = None
    max_chars: Annotated[int, Field(ge=1)] | None = None


class ScratchpadKeyedRequest(ScratchpadRequest):
    """`scratchpad.write` and `.append`: they need a key."""

    key: Text


class ScratchpadResult(Answer):
    """`output` is what goes downstream: operation metadata, the stored value, or the summary's text.

    The operation's details (`count`, `dropped`, `max_items`, `summary_key`, `characters`, `truncated`...) and `input`,
    the last output before it, lie beside it.
    """

    operation: Literal["write", "append", "read", "summarize", "clear"]
    namespace: str
    key: str | None = None
    input: Json = None
    output: Json
    replaced: bool | None = None
    found: bool | None = None
    count: int | None = None
    dropped: int | None = None
    max_items: int | None = None
    summary_key: str | None = None
    characters: int | None = None
    truncated: bool | None = None
    removed: int | None = None
