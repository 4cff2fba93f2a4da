"""Data of the commonest command, read in a fifth of the time.

Whatever is taken here, `schemas.memory.MemoryWriteCommand` takes as the same values. It reads the rest, and tells what
is wrong with it: so a rule that is added there needs no twin here, only a field or a refusal less.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from schemas.data import Json
from schemas.envelope import Event
from schemas.memory import Scope, TtlUnit, WorkflowGlobal

_Text = Annotated[str, Meta(min_length=1, max_length=1024)]
_Count = Annotated[int, Meta(ge=0)]


class PlainSubject(Struct, frozen=True, forbid_unknown_fields=True):
    """Whom an item belongs to."""

    kind: _Text
    id: _Text


class PlainWriter(Struct, frozen=True, forbid_unknown_fields=True):
    """Who writes. It is only checked: what is kept of it is what came."""

    execution_id: _Text | None = None
    workflow: _Text | None = None
    node_id: _Text | None = None
    user_id: _Text | None = None


class PlainWrite(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A write with or without a condition, and nothing that needs interpretation."""

    scope: Scope
    subject: PlainSubject | WorkflowGlobal
    key: _Text
    type: _Text
    value: Json
    workflow: _Text | None = None
    writer: PlainWriter | None = None
    #: Null is no plain condition: it came out empty.
    expected_version: _Count | UnsetType = UNSET
    read_version: _Count | None = None
    on_conflict: Literal["fail", "merge"] = "fail"
    ttl: int | None = None
    ttl_unit: TtlUnit | None = None


def plain_write(event: Event) -> PlainWrite | None:
    """Return the data of a `memory.write` that is plain; None for anything else, which is for `parse_command`."""
    if event.type != "memory.write":
        return None
    try:
        return msgspec.convert(event.data, PlainWrite)
    except msgspec.ValidationError:
        return None
