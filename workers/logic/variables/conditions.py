"""A condition, structured or as text -> its truth, with every value that it looked at.

{"variable": "risk.score", "operator": "greater_than", "value": 0.8}
{"all": [{"left": "{{a.b || c}}", "operator": "exists"}, {"not": "{{d}} == 'x' OR {{e}} in [1, 2]"}]}
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import assert_never

from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue, dumps
from schemas.limits import DEFAULT_LIMITS
from workers.logic.variables.comparisons import SYMBOLS, Operator, compare
from workers.logic.variables.condition_text import parse_condition_text
from workers.logic.variables.condition_tree import Comparison, Condition, Group, Not, Side
from workers.logic.variables.references import CACHED_CHARACTERS, Lookup, Read, Reference, parse_reference
from workers.logic.variables.templates import parse_template, reference_template

_LEFT = ("variable", "left")
_RIGHT = ("value", "right")
_COMPARISON_KEYS = frozenset((*_LEFT, "operator", *_RIGHT))
_FORMS = (
    'an expression text, {"variable", "operator", "value"}, {"left", "operator", "right"}, '
    '{"all": [...]}, {"any": [...]} or {"not": ...}'
)
_parse_text_cached = lru_cache(maxsize=1024)(parse_condition_text)


@dataclass(frozen=True, slots=True)
class Value:
    """One side of a comparison as it was: what was written, and what that gave."""

    source: JsonValue
    value: JsonValue

    def as_json(self, max_bytes: int) -> JsonObject:
        """Give `value` (a larger one as `value_bytes` and `value_sha256`), and `template` where it had references."""
        template: JsonObject = {} if self.source is self.value else {"template": self.source}
        size = len(encoded := dumps(self.value))
        if size <= max_bytes:
            return {**template, "value": self.value}
        return {**template, "value_bytes": size, "value_sha256": sha256(encoded).hexdigest()}


@dataclass(frozen=True, slots=True)
class Operand:
    """One comparison as it went. `result` is None where the outcome was settled without it."""

    left: Value
    operator: Operator
    right: Value | None
    result: bool | None

    def as_json(self, max_value_bytes: int = DEFAULT_LIMITS.conflict_value_bytes) -> JsonObject:
        """Give `left`, `operator`, `right` (binary operators) and `result` for `condition.evaluated`."""
        right: JsonObject = {} if self.right is None else {"right": self.right.as_json(max_value_bytes)}
        left = self.left.as_json(max_value_bytes)
        return {"left": left, "operator": self.operator.value, **right, "result": self.result}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The truth of a condition, the comparisons in their order, and what was read for them."""

    result: bool
    operands: tuple[Operand, ...]
    reads: tuple[Read, ...]


@dataclass(frozen=True, slots=True)
class Branch:
    """A way out; the one without a condition is the default."""

    name: str
    condition: Condition | None


@dataclass(frozen=True, slots=True)
class Choice:
    """The name of the branch to take (None: none holds and there is no default), and what was compared."""

    branch: str | None
    operands: tuple[Operand, ...]
    reads: tuple[Read, ...]


def parse_condition(value: JsonValue) -> Condition:
    """Parse any form. Raises `Rejection`: `condition_invalid`, or `template_invalid` in a reference."""
    return _parse(value, "the condition")


def _parse(value: JsonValue, place: str) -> Condition:
    if isinstance(value, str):
        return parse_condition_text(value) if len(value) > CACHED_CHARACTERS else _parse_text_cached(value)
    if not isinstance(value, dict):
        raise _invalid(place, f"must be {_FORMS}")
    if "operator" in value:
        return _parse_comparison(value, place)
    match list(value.items()):
        case [("all" | "any" as kind, [_, *_] as parts)]:
            return Group(
                "all" if kind == "all" else "any",
                tuple(_parse(part, f"{place}, {kind}.{index}") for index, part in enumerate(parts)),
            )
        case [("all" | "any" as kind, _)]:
            raise _invalid(place, f"{kind!r} must be a list of at least one condition")
        case [("not", part)]:
            return Not(_parse(part, f"{place}, not"))
        case _:
            raise _invalid(place, f"must be {_FORMS}; these keys are none of them: {', '.join(value) or '(none)'}")


def _parse_comparison(fields: JsonObject, place: str) -> Comparison:
    unknown = fields.keys() - _COMPARISON_KEYS
    if unknown:
        raise _invalid(place, f"unknown key {min(unknown)!r}; a comparison is {_FORMS}")
    operator = _parse_operator(fields["operator"], place)
    left = [key for key in _LEFT if key in fields]
    right = [key for key in _RIGHT if key in fields]
    if len(left) != 1:
        raise _invalid(place, "needs either 'variable' (a path) or 'left' (a template)")
    if len(right) > 1:
        raise _invalid(place, "has both 'value' and 'right'; keep one")
    if operator.unary:
        if right and fields[right[0]] not in (None, ""):
            raise _invalid(place, f"{operator} looks at one value only; leave {right[0]!r} out")
    elif not right:
        raise _invalid(place, f"{operator} needs 'value' or 'right'")
    source = fields[left[0]]
    subject = _parse_variable(source, place) if left[0] == "variable" else Side(source, parse_template(source))
    if operator.unary:
        return Comparison(subject, operator, None)
    return Comparison(subject, operator, Side(fields[right[0]], parse_template(fields[right[0]])))


def _parse_operator(name: JsonValue, place: str) -> Operator:
    if isinstance(name, str):
        known = SYMBOLS.get(name) or Operator.__members__.get(name.upper())
        if known:
            return known
    raise _invalid(place, f"unknown operator {name!r}; known are {', '.join(Operator)} and {' '.join(SYMBOLS)}")


def _parse_variable(path: JsonValue, place: str) -> Side:
    """Read the path of a variable, which may stand in `{{ }}` as it does everywhere else."""
    if not isinstance(path, str):
        raise _invalid(place, "'variable' must be a path such as risk.score")
    bare = path.strip()
    inside = bare[2:-2] if bare.startswith("{{") and bare.endswith("}}") else bare
    reference = parse_reference(inside)
    return Side(f"{{{{{reference}}}}}", reference_template(reference))


def _invalid(place: str, what: str) -> Rejection:
    return Rejection("condition_invalid", f"{place}: {what}")


def parse_branches(value: JsonValue) -> tuple[Branch, ...]:
    """Parse `[{"name", "condition"?}, ...]`. Raises as `parse_condition` does, and for two equal names or defaults."""
    if not isinstance(value, list) or not value:
        raise _invalid("branches", 'must be a list of at least one {"name", "condition"}')
    branches = tuple(_parse_branch(branch, f"branches.{index}") for index, branch in enumerate(value))
    names = [branch.name for branch in branches]
    if len(set(names)) < len(names):
        raise _invalid("branches", "two branches have the same name")
    if sum(branch.condition is None for branch in branches) > 1:
        raise _invalid("branches", "two branches have no condition; only one can be the default")
    return branches


def _parse_branch(value: JsonValue, place: str) -> Branch:
    if not isinstance(value, dict) or not isinstance(name := value.get("name"), str) or not name:
        raise _invalid(place, 'must be {"name", "condition"}, the name a text')
    if unknown := value.keys() - {"name", "condition"}:
        raise _invalid(place, f"unknown key {min(unknown)!r}")
    condition = value.get("condition")
    return Branch(name, None if condition is None else _parse(condition, f"{place}, the condition"))


def references_of(condition: Condition) -> tuple[Reference, ...]:
    """Give every reference of a condition, in order, each once: what it has to wait for."""
    return tuple(dict.fromkeys(_references(condition)))


def _references(condition: Condition) -> Iterator[Reference]:
    match condition:
        case Comparison():
            yield from condition.left.template.references
            if condition.right is not None:
                yield from condition.right.template.references
        case Group():
            for part in condition.conditions:
                yield from _references(part)
        case Not():
            yield from _references(condition.condition)
        case _:
            assert_never(condition)


def evaluate(condition: Condition, lookup: Lookup) -> Evaluation:
    """Find out whether a condition holds, from left to right, and stop comparing once that is settled.

    So a guard protects what follows it (`{{kind}} == 'number' AND {{x}} > 5`). The values of the comparisons
    that were not needed are recorded all the same. Raises `Rejection`: `comparison_invalid`, `result_too_large`.
    """
    evaluator = _Evaluator(lookup)
    result = evaluator.holds(condition)
    return Evaluation(result, tuple(evaluator.operands), tuple(evaluator.reads))


def choose_branch(branches: Sequence[Branch], lookup: Lookup) -> Choice:
    """Take the first branch whose condition holds, else the default, wherever that stands.

    The branches after the one taken are not looked at. Raises as `evaluate` does.
    """
    evaluator = _Evaluator(lookup)
    chosen = next(
        (branch.name for branch in branches if branch.condition is not None and evaluator.holds(branch.condition)),
        next((branch.name for branch in branches if branch.condition is None), None),
    )
    return Choice(chosen, tuple(evaluator.operands), tuple(evaluator.reads))


class _Evaluator:
    """One evaluation: what was compared and read so far (`reads` is used as an ordered set)."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._left = DEFAULT_LIMITS.store_bytes
        self.operands: list[Operand] = []
        self.reads: dict[Read, None] = {}

    def holds(self, condition: Condition) -> bool:
        match condition:
            case Comparison():
                return self._compare(condition)
            case Group():
                settling = condition.kind == "any"
                for index, part in enumerate(condition.conditions):
                    if self.holds(part) is settling:
                        for unneeded in condition.conditions[index + 1 :]:
                            self._record_unneeded(unneeded)
                        return settling
                return not settling
            case Not():
                return not self.holds(condition.condition)
            case _:
                assert_never(condition)

    def _compare(self, comparison: Comparison) -> bool:
        left, right = self._values(comparison)
        result = compare(left.value, comparison.operator, None if right is None else right.value)
        self.operands.append(Operand(left, comparison.operator, right, result))
        return result

    def _record_unneeded(self, condition: Condition) -> None:
        match condition:
            case Comparison():
                left, right = self._values(condition)
                self.operands.append(Operand(left, condition.operator, right, None))
            case Group():
                for part in condition.conditions:
                    self._record_unneeded(part)
            case Not():
                self._record_unneeded(condition.condition)
            case _:
                assert_never(condition)

    def _values(self, comparison: Comparison) -> tuple[Value, Value | None]:
        left = self._value(comparison.left)
        return left, None if comparison.right is None else self._value(comparison.right)

    def _value(self, side: Side) -> Value:
        value, reads = side.template.render(self._lookup)
        self.reads.update(dict.fromkeys(reads))
        if reads and isinstance(value, (str, list, dict)):
            self._left -= len(value) if isinstance(value, str) else len(dumps(value))
            if self._left < 0:
                raise Rejection(
                    "result_too_large",
                    f"its comparisons look at more than {DEFAULT_LIMITS.store_bytes} bytes, as much as a store holds; "
                    "compare smaller parts, or less often",
                )
        return Value(side.source, value)
