"""Expression text (`{{amount}} > 50000 AND NOT ({{ok}} == true OR {{code}} in [1, 'x'])`) -> a condition.

    expression  = conjunction, { "OR", conjunction }
    conjunction = negation, { "AND", negation }
    negation    = "NOT", negation | "(", expression, ")" | comparison
    comparison  = operand, operator, [ operand ]
    operand     = "{{", reference, "}}" | text | number | "true" | "false" | "null" | list
    list        = "[", [ operand, { ",", operand } ], "]"

Words are read in any case. Every error names its place.
"""

import re
from collections.abc import Callable
from typing import Literal, TypeVar

from schemas.errors import Rejection
from schemas.exact_json import InvalidJson, JsonValue, loads
from workers.logic.variables.comparisons import SYMBOLS, Operator
from workers.logic.variables.condition_tree import Comparison, Condition, Group, Not, Side
from workers.logic.variables.references import parse_reference_at, pointing_at
from workers.logic.variables.templates import parse_template

#: Parentheses, NOTs and lists; deeper is a generator gone wrong, and would exhaust the stack.
MAX_DEPTH = 64

_AND = re.compile(r"and(?!\w)", re.IGNORECASE)
_OR = re.compile(r"or(?!\w)", re.IGNORECASE)
_NOT = re.compile(r"not(?!\w)", re.IGNORECASE)
_SYMBOL = re.compile(r"[=!><]=|[><]")
#: The longest first, and spaces for underscores: `is not empty`.
_WORDS = re.compile(
    "(?:" + "|".join(sorted((name.replace("_", r"[_\s]+") for name in Operator), key=len, reverse=True)) + r")(?!\w)",
    re.IGNORECASE,
)
_DOUBLE_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SINGLE_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL)
_ESCAPED_QUOTE = re.compile(r"\\(['\\])")
_NUMBER = re.compile(r"-?[0-9][0-9.eE+-]*(?!\w)")
_LITERAL = re.compile(r"(?:true|false|null)(?!\w)", re.IGNORECASE)
_WORD = re.compile(r"\w")
_Part = TypeVar("_Part")
#: What other languages write, and what to write here.
_HINTS = {
    "=": "write == to compare",
    "&": "write AND",
    "|": "write OR, or put the fallback into one reference: {{a || b}}",
    "!": "write NOT, or !=",
}


def parse_condition_text(text: str) -> Condition:
    """Parse an expression. Raises `Rejection` (`condition_invalid`, or `template_invalid` in a reference)."""
    return _Parser(text).whole()


class _Parser:
    """Recursive descent; `_at` is the next character to read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def whole(self) -> Condition:
        condition = self._expression()
        if self._peek():
            raise self._expected("AND, OR or the end")
        return condition

    def _expression(self) -> Condition:
        return self._joined("any", _OR, lambda: self._joined("all", _AND, self._negation))

    def _joined(self, kind: Literal["all", "any"], word: re.Pattern[str], part: Callable[[], Condition]) -> Condition:
        parts = [part()]
        while self._take(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Group(kind, tuple(parts))

    def _negation(self) -> Condition:
        if self._take(_NOT):
            return self._deeper(lambda: Not(self._negation()))
        if self._peek() != "(":
            return self._comparison()
        self._at += 1
        condition = self._deeper(self._expression)
        if self._peek() != ")":
            raise self._expected("AND, OR or )")
        self._at += 1
        return condition

    def _comparison(self) -> Condition:
        left = self._side()
        operator = self._operator()
        return Comparison(left, operator, None if operator.unary else self._side())

    def _operator(self) -> Operator:
        symbol = self._take(_SYMBOL)
        if symbol:
            return SYMBOLS[symbol[0]]
        word = self._take(_WORDS)
        if word:
            return Operator("_".join(re.split(r"[_\s]+", word[0].lower())))
        raise self._expected(
            "an operator such as ==, > or contains; a value alone is no condition, write {{ok}} == true"
        )

    def _side(self) -> Side:
        self._peek()
        start = self._at
        source = self._operand()
        try:
            return Side(source, parse_template(source))
        except Rejection as rejection:
            message = pointing_at(self._text, start, f"in this value, {rejection.message}")
            raise Rejection(rejection.reason, message) from rejection

    def _operand(self) -> JsonValue:
        """Read an operand as the JSON template that means the same."""
        opening = self._peek()
        if self._text.startswith("{{", self._at):
            return self._reference()
        if opening == "[":
            self._at += 1
            return self._deeper(self._list)
        if double_quoted := self._take(_DOUBLE_QUOTED):
            return self._json(double_quoted[0], double_quoted.start())
        if single_quoted := self._take(_SINGLE_QUOTED):
            return _ESCAPED_QUOTE.sub(r"\1", single_quoted[1])
        if number := self._take(_NUMBER):
            return self._json(number[0], number.start())
        if literal := self._take(_LITERAL):
            return {"true": True, "false": False, "null": None}[literal[0].lower()]
        if opening in ("'", '"'):
            raise self._wrong(self._at, "this text has no closing quote")
        raise self._expected("a {{reference}}, a 'text', a number, true, false, null or a [list]")

    def _reference(self) -> str:
        closing = self._text.find("}}", self._at)
        if closing < 0:
            raise self._wrong(self._at, "no }} closes this {{")
        reference = parse_reference_at(self._text, self._at + 2, closing)
        self._at = closing + 2
        return f"{{{{{reference}}}}}"

    def _list(self) -> JsonValue:
        items: list[JsonValue] = []
        while self._peek() != "]":
            items.append(self._operand())
            if self._peek() == ",":
                self._at += 1
            elif self._peek() != "]":
                raise self._expected(", or ]")
        self._at += 1
        return items

    def _json(self, literal: str, start: int) -> JsonValue:
        try:
            return loads(literal.encode())
        except InvalidJson as error:
            raise self._wrong(start, f"this is written as JSON writes it, and {error}") from error

    def _deeper(self, part: Callable[[], _Part]) -> _Part:
        if self._depth == MAX_DEPTH:
            raise self._wrong(self._at, f"the condition is nested deeper than {MAX_DEPTH} levels")
        self._depth += 1
        result = part()
        self._depth -= 1
        return result

    def _peek(self) -> str:
        """Skip white space and show the next character, or nothing at the end."""
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        return self._text[self._at : self._at + 1]

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self._peek()
        match = pattern.match(self._text, self._at)
        if match:
            self._at = match.end()
        return match

    def _expected(self, what: str) -> Rejection:
        found = self._peek()
        if not found:
            return self._wrong(self._at, f"the condition ends here, expected {what}")
        hint = "references stand in {{ }} and texts in quotes" if _WORD.match(found) else _HINTS.get(found)
        return self._wrong(self._at, f"expected {what}" + (f" ({hint})" if hint else ""))

    def _wrong(self, place: int, what: str) -> Rejection:
        return Rejection("condition_invalid", pointing_at(self._text, place, what))
