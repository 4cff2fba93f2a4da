"""Which way a run goes (a Condition node)."""

from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from schemas.data import Answer, Data, Expected, Json, NodeRequest, Object, Text

#: Expression text (`{{amount}} > 50000 AND {{ok}} == true`) or the structured form.
ConditionBody = Annotated[Text | Object, Expected("an expression text or a condition object")]


class Branch(Data):
    """One way out; the one without a condition is the default."""

    name: Text
    condition: ConditionBody | None = None


class ConditionEvaluate(NodeRequest):
    """Asks for a `condition`'s truth, or for the first of `branches` that holds."""

    condition: ConditionBody | None = None
    branches: Annotated[list[Branch], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one_question(self) -> Self:
        if (self.condition is None) == (self.branches is None):
            raise PydanticCustomError("one_question", "should have either condition or branches, and not both")
        return self


class ConditionEvaluated(Answer):
    """`result` answers a condition, `branch` (null: none held) answers branches; `operands` are what was compared."""

    result: bool | None = None
    branch: str | None = None
    operands: list[Json] = Field(default_factory=list)
