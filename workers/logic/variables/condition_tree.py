"""What a condition is once it is parsed, from its structured form or from text."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from schemas.exact_json import JsonValue
from workers.logic.variables.comparisons import Operator
from workers.logic.variables.templates import Template


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: the JSON it was written as, and the template that it is."""

    source: JsonValue
    template: Template


@dataclass(frozen=True, slots=True)
class Comparison:
    """`right` is None for the operators that look at their left side only."""

    left: Side
    operator: Operator
    right: Side | None


@dataclass(frozen=True, slots=True)
class Group:
    """At least one condition: `all` of them hold, or `any` does."""

    kind: Literal["all", "any"]
    conditions: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a condition."""

    condition: "Condition"


Condition: TypeAlias = Comparison | Group | Not
