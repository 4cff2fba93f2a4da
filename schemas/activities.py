"""What activities are given and what they produced."""

from pydantic import Field

from schemas.data import Answer, InLoop, Json, Object, Request, Templates, Text
from schemas.revisions import VariableRead


class ActivityScheduled(Request):
    """Asks for the inputs of an activity to be bound."""

    activity_id: Text
    inputs: Templates = Field(default_factory=dict)
    child_execution_id: Text | None = None


class ActivityCompleted(InLoop):
    """An output, stored flat under the activity's id, or as `output_mapping` says."""

    activity_id: Text
    #: An object as a rule; any other JSON is kept as it is, since a loop's body may give plain items.
    output: Json
    output_mapping: Templates | None = None
    variables: Object | None = None


class ActivityFailed(InLoop):
    """An activity gave no output."""

    activity_id: Text
    error: Json


class VariablesSet(InLoop):
    """Sets names at the top level; templates allowed."""

    variables: Templates


class ActivityReady(Answer):
    """The bound inputs; `missing` lists the references that came out null, each by its first path.

    `node_id` is the activity's id too; `child_execution_id` comes back where the request gave one.
    """

    activity_id: str
    inputs: Object
    reads: list[VariableRead] = Field(default_factory=list)
    missing: list[str] = Field(default_factory=list)
    child_execution_id: str | None = None
