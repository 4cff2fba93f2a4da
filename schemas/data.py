"""The base of every event's data: frozen, strict, exact numbers untouched.

Data has been parsed by `schemas.exact_json` before it comes here: values are
None, bool, int, Decimal, str, list and dict, and none of them is copied or converted. What others write
is read strictly (an unknown field is an error: a silent typo would lose data); what this project writes is
read tolerantly (`Outbound` ignores fields that a newer version added).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    StringConstraints,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, core_schema

from schemas.exact_json import JsonObject, JsonValue

#: As long as an attribute of the envelope: an execution's id stands in both.
_TEXT_CHARACTERS = 1024
#: Loops in loops, as deep as values may be nested: looking a name up goes through all of them.
_LOOP_LEVELS = 64
_LOOP_NODE_CHARACTERS = 256


class Data(BaseModel):
    """What is said about an event of one type. Unknown fields are refused."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Outbound(Data):
    """Written by the workers; readers of an older version ignore what they do not know."""

    model_config = ConfigDict(extra="ignore")


def _object_schema(_source: object, _handler: GetCoreSchemaHandler) -> CoreSchema:
    # An instance check, not a dict schema: the parsed object is passed through, not copied key by key.
    return core_schema.is_instance_schema(dict, cls_repr="object")


if TYPE_CHECKING:
    Json: TypeAlias = JsonValue
    Object: TypeAlias = JsonObject
else:
    #: Any JSON value, passed through.
    Json = object
    #: Any JSON object, passed through.
    Object = Annotated[dict, GetPydanticSchema(_object_schema), WithJsonSchema({"type": "object"})]


@dataclass(frozen=True, slots=True)
class Expected:
    """One plain sentence instead of an error for each branch of a union."""

    what: str

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Wrap the schema of `source`: any failure in it reads "should be `what`"."""
        return core_schema.custom_error_schema(
            handler(source), custom_error_type="expected", custom_error_message=f"should be {self.what}"
        )


#: A text that says something, of any length; parts of an address have the address's own limit.
LongText = Annotated[str, StringConstraints(min_length=1)]
#: A name, key or id. Answers repeat several of them, each maybe more than once: all must fit into one record.
Text = Annotated[str, StringConstraints(min_length=1, max_length=_TEXT_CHARACTERS)]
#: A name that PostgreSQL keeps as text, which cannot hold NUL.
StoredText = Annotated[Text, StringConstraints(pattern=r"^[^\x00]*$")]
#: The values that `{{...}}` references are bound in, by name.
Templates: TypeAlias = Object
Revision = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
#: RFC 3339 in UTC, written by the workers.
Timestamp: TypeAlias = str


class IterationStep(Data):
    """One loop around a request: the ForEach node and the index of its item."""

    node_id: Annotated[str, StringConstraints(min_length=1, max_length=_LOOP_NODE_CHARACTERS)]
    index: Count


#: The loops around a request, outermost first; a tuple so that it can key a frame.
Iteration = Annotated[tuple[IterationStep, ...], Field(strict=False, max_length=_LOOP_LEVELS)]
#: A node (`reader`), a port of it (`reserver.version`), or several of them.
After = Annotated[
    Text | Annotated[tuple[Text, ...], Field(strict=False)],
    Field(union_mode="left_to_right"),
    Expected("a node id, NODE.PORT, or a list of them"),
]


class InLoop(Data):
    """Data that may belong to an iteration of a loop."""

    iteration: Iteration | None = None


class Request(InLoop):
    """A request of an execution: it may wait for other nodes."""

    after: After | None = None

    @property
    def awaited(self) -> tuple[str, ...]:
        """Return what `after` names, always as a sequence."""
        if self.after is None:
            return ()
        return (self.after,) if isinstance(self.after, str) else self.after


class NodeRequest(Request):
    """A request that is answered under the id of its node."""

    node_id: Text


class Answer(Outbound):
    """The one answer of a request: which event it answers, of which node, in which iteration."""

    node_id: str
    request_id: str
    request_source: str
    iteration: Iteration | None = None


Status = Literal["completed", "failed", "cancelled"]
