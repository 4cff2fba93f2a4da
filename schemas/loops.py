"""Branches that join and bodies that repeat (Parallel and ForEach nodes)."""

from typing import Annotated

from pydantic import Field

from schemas.data import Answer, Count, Expected, Json, LongText, NodeRequest, Object, Outbound, Templates, Text


class ParallelJoin(NodeRequest):
    """Asks for the outputs of `branches` (activity ids, in order) in one variable."""

    branches: Annotated[list[Text], Field(min_length=1)]
    output_variable: Text = "parallel_results"


class ParallelJoined(Answer):
    """Outputs by branch id; null for a branch that failed or never ran."""

    output_variable: str
    results: Object


class ForeachOpen(NodeRequest):
    """Asks for the items of a collection, each with its bound inputs."""

    collection: Annotated[LongText | list[Json], Expected("a reference or a list")]
    item_variable: Text
    input_mapping: Templates | None = None


class ForeachItem(Outbound):
    """One iteration to run."""

    index: Count
    item: Json
    inputs: Object


class ForeachOpened(Answer):
    """The iterations to run, in the collection's order."""

    items: list[ForeachItem]


class ForeachClose(NodeRequest):
    """Asks for what the bodies produced."""


class ForeachClosed(Answer):
    """Results by index: the body's output, or an object by activity id where the body has several."""

    results: list[Json]
