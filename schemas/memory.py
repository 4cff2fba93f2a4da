"""Durable memory: commands, requests of executions, outcomes, conflicts, changes.

A *request* comes with an execution (`node_id`; `subject` may be a kind of the run's subjects; `value` and
`expected_version` may be templates). A *command* is complete: it names its item itself.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from schemas.data import Count, Data, Expected, Json, LongText, NodeRequest, Object, Outbound, Text, Timestamp
from schemas.executions import SubjectRef

Scope = Literal["workflow", "shared"]
TtlUnit = Literal["seconds", "minutes", "hours", "days"]
Operation = Literal["increment", "append", "union", "max", "min", "merge_patch"]
WorkflowGlobal = Literal["workflow-global"]
CommandSubject = Annotated[
    SubjectRef | WorkflowGlobal,
    Field(union_mode="left_to_right"),
    Expected('{kind, id} (both texts) or "workflow-global"; a kind alone only means something in an execution'),
]
RequestSubject = Annotated[
    Text | SubjectRef,
    Field(union_mode="left_to_right"),
    Expected('a kind of the run\'s subjects, {kind, id} (both texts), or "workflow-global"'),
]
#: A text passes here, as a template may leave it behind: the plan reads "3" as 3, and answers a blank one with
#: `expected_version_required`, as it does null.
CommandVersion = Annotated[
    Count | str,
    Field(union_mode="left_to_right"),
    Expected("a whole number from 0; 0 means that nothing is stored yet"),
]
RequestVersion = Annotated[
    Count | str,
    Field(union_mode="left_to_right"),
    Expected("a whole number from 0, or a reference such as {{n.version}}"),
]
Ttl = Annotated[int | Literal["keep"], Field(union_mode="left_to_right"), Expected('a whole number or "keep"')]


#: It may be empty; conflicts show three writers.
WriterText = Annotated[str, StringConstraints(max_length=1024)]


class Writer(Data):
    """Who writes: shown in conflicts, changes and history."""

    execution_id: WriterText | None = None
    workflow: WriterText | None = None
    node_id: WriterText | None = None
    user_id: WriterText | None = None


class KnownWriter(Writer):
    """Who wrote, as it is kept with the version: what the command said; without an execution, which command it was."""

    model_config = ConfigDict(extra="ignore")

    command_id: WriterText | None = None
    command_source: WriterText | None = None


class _Retention(Data):
    ttl: Ttl | None = None
    ttl_unit: TtlUnit | None = None


class _WriteFields(_Retention):
    type: Text
    value: Json
    on_conflict: Literal["fail", "merge"] = "fail"


class _UpdateFields(_Retention):
    type: Text
    operation: Operation
    by: Json = None
    value: Json = None
    max_items: Annotated[int, Field(ge=1)] | None = None


class _CommandFields(Data):
    scope: Scope
    subject: CommandSubject
    key: LongText
    workflow: LongText | None = None
    writer: Writer | None = None


class _RequestFields(NodeRequest):
    scope: Scope
    subject: RequestSubject
    key: LongText
    #: The run's own workflow; it may be said, but not changed.
    workflow: Text | None = None


class _Conditional(Data):
    conditional: bool | None = None

    @property
    def is_conditional(self) -> bool:
        """Tell whether a condition was asked for, even where it then lacks the version."""
        return self.conditional is True or "expected_version" in self.model_fields_set


class _Condition(_Conditional):
    expected_version: CommandVersion | None = None


class MemoryWriteCommand(_CommandFields, _WriteFields, _Condition):
    """Write a value; with `expected_version`, only if the item still has that version."""

    read_version: Count | None = None


class MemoryReadCommand(_CommandFields):
    """Read a value as `type`."""

    type: Text


class MemoryForgetCommand(_CommandFields, _Condition):
    """Forget a value, with `expected_version` only that version; its versions go on counting."""


class MemoryUpdateCommand(_CommandFields, _UpdateFields, _Condition):
    """Change a value where it is, so that hot items need no retry loop."""

    read_version: Count | None = None


class _RequestCondition(_Conditional):
    expected_version: RequestVersion | None = None


class MemoryWriteRequest(_RequestFields, _WriteFields, _RequestCondition):
    """`memory.write` of an execution."""


class MemoryReadRequest(_RequestFields):
    """`memory.read` of an execution."""

    type: Text


class MemoryForgetRequest(_RequestFields, _RequestCondition):
    """`memory.forget` of an execution."""


class MemoryUpdateRequest(_RequestFields, _UpdateFields, _RequestCondition):
    """`memory.update` of an execution."""


class Outcome(Outbound):
    """The one outcome of a command. `address` is the canonical text."""

    command_id: str
    command_source: str
    address: str


class MemoryWritten(Outcome):
    """The write happened; `merged` when a merge made it possible."""

    version: int
    expires_at: Timestamp
    merged: bool = False


class MemoryUpdated(Outcome):
    """The update happened; `value` is the new value."""

    version: int
    value: Json
    expires_at: Timestamp


class MemoryConflicted(Outcome):
    """Nothing was written: the item has another version than the one expected."""

    expected_version: int
    current_version: int


class MemoryFound(Outcome):
    """A value as the reader's type; `converted_from` names the stored type when it was converted."""

    value: Json
    type: str
    version: int
    written_at: Timestamp
    expires_at: Timestamp
    converted_from: str | None = None


class MemoryMissing(Outcome):
    """Never written, forgotten or expired."""

    version: Literal[0] = 0


class MemoryForgotten(Outcome):
    """The item is gone; `existed` tells whether there was one."""

    existed: bool


class MemoryRejected(Outbound):
    """The command could not be carried out; without `address` not even its item could be named."""

    command_id: str
    command_source: str
    address: str | None = None
    code: str
    message: str


class ConflictSide(Outbound):
    """One value of a race. A value over 32 KiB is left out: `value_bytes` and `value_sha256` stand for it."""

    value: Json = None
    value_bytes: int | None = None
    value_sha256: str | None = None
    version: int | None = None
    writer: KnownWriter | None = None
    written_at: Timestamp | None = None


class ConflictDiff(Outbound):
    """RFC 6902 patches; null where a side is missing or too large."""

    base_to_current: list[Object] | None = None
    base_to_attempted: list[Object] | None = None


class MemoryConflictDetected(Outbound):
    """A race between writers: reported whether or not the second write was applied."""

    kind: Literal["conditional_write", "lost_update"]
    address: str
    command_id: str
    command_source: str
    expected_version: int | None = None
    current_version: int
    base: ConflictSide | None = None
    current: ConflictSide | None = None
    attempted: ConflictSide
    diff: ConflictDiff | None = None
    overlapping_paths: list[str] = Field(default_factory=list)
    mergeable: bool = False
    #: `rejected` (nothing was written), `merged`, or `overwritten` (a lost update).
    resolution: Literal["rejected", "merged", "overwritten"]


class MemoryChanged(Outbound):
    """The newest state of an item; readers keep the highest `sequence`."""

    change: Literal["written", "forgotten", "expired"]
    address: str
    version: int
    previous_version: int
    sequence: int
    type: str | None = None
    value: Json = None
    writer: KnownWriter | None = None
    written_at: Timestamp | None = None
    expires_at: Timestamp | None = None
