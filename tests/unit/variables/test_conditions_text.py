"""Expression text: its grammar, and errors that name the place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue, dumps
from tests.support.json_values import json_values, lookup_in, reason_of
from workers.logic.variables.comparisons import SYMBOLS, Operator
from workers.logic.variables.condition_text import MAX_DEPTH
from workers.logic.variables.condition_tree import Comparison, Group, Not
from workers.logic.variables.conditions import evaluate, parse_condition, references_of

STORE: JsonObject = {
    "amount": 60000,
    "risk_score": "0.8",
    "is_compliant": True,
    "name": "Ada",
    "tags": ["a", 2],
    "first name": "x",
    "t": True,
    "f": False,
}


def holds(text: str) -> bool:
    return evaluate(parse_condition(text), lookup_in(STORE)).result


def right_of(text: str) -> JsonValue:
    condition = parse_condition(text)
    assert isinstance(condition, Comparison)
    assert condition.right is not None
    return condition.right.source


def test_the_condition_of_the_guide_holds() -> None:
    assert holds("{{amount}} > 50000 AND\n{{risk_score}} > 0.7 AND\n{{is_compliant}} == true")
    assert not holds("{{amount}} > 60000 AND {{risk_score}} > 0.7 AND {{is_compliant}} == true")


@pytest.mark.parametrize("operator", Operator)
def test_every_operator_is_a_word_in_any_case_with_spaces_or_underscores(operator: Operator) -> None:
    right = "" if operator.unary else " 1"
    for word in (operator.value, operator.value.upper(), operator.value.replace("_", "  "), operator.value.title()):
        condition = parse_condition(f"{{{{a}}}} {word}{right}")

        assert isinstance(condition, Comparison)
        assert condition.operator is operator


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_every_symbol_needs_no_space(symbol: str) -> None:
    condition = parse_condition(f"{{{{a}}}}{symbol}1")

    assert isinstance(condition, Comparison)
    assert condition.operator is SYMBOLS[symbol]


def test_not_binds_more_than_and_and_and_more_than_or() -> None:
    true, false = "{{t}} == true", "{{f}} == true"

    assert holds(f"{true} OR {true} AND {false}")
    assert not holds(f"({true} OR {true}) AND {false}")
    assert not holds(f"NOT {true} AND {false}")
    assert holds(f"NOT ({true} AND {false})")
    assert holds(f"not {false} or {true}")
    assert holds(f"NOT NOT {true}")


def test_chains_are_one_group() -> None:
    condition = parse_condition("{{a}} exists OR {{b}} exists OR NOT {{c}} exists AND {{d}} exists")

    assert isinstance(condition, Group)
    assert (condition.kind, len(condition.conditions)) == ("any", 3)
    assert isinstance(condition.conditions[2], Group)
    assert isinstance(condition.conditions[2].conditions[0], Not)


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("'it'", "it"),
        (r"'it\'s \\ \n'", r"it's \ \n"),
        (r'"say \"hi\" \u00fc"', 'say "hi" ü'),
        ("''", ""),
        ("TRUE", True),
        ("False", False),
        ("Null", None),
        ("[]", []),
        ("[1, 'a', [true], {{b}}]", [1, "a", [True], "{{b}}"]),
        ("{{ a.b||c }}", "{{a.b || c}}"),
        ("'{{a}} and {{b}}'", "{{a}} and {{b}}"),
    ],
)
def test_operands_are_references_and_literals(literal: str, value: JsonValue) -> None:
    text = f"{{{{a}}}} == {literal}"

    assert right_of(text) == value


def test_numbers_are_exact() -> None:
    assert dumps(right_of("{{a}} == 0.1234567890123456789")) == b"0.1234567890123456789"
    assert dumps(right_of("{{a}} == -1.50")) == b"-1.50"
    assert dumps(right_of("{{a}} == 12345678901234567890")) == b"12345678901234567890"


def test_a_literal_may_stand_left_and_texts_may_hold_references() -> None:
    assert holds("50000 < {{amount}}")
    assert holds("'a' in {{tags}} AND {{tags}} contains '2'")
    assert holds("{{name}} in ['Bob', \"{{name}}\"]")
    assert holds("'{{name}}!' ends with '!' AND {{first name}} == 'x'")


def test_references_are_found_wherever_they_stand() -> None:
    condition = parse_condition("{{a}} > 1 AND NOT ({{b || c}} in [{{d}}, '{{e}}'] OR {{a}} exists)")

    assert [str(reference) for reference in references_of(condition)] == ["a", "b || c", "d", "e"]


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("", 1, "the condition ends here, expected a {{reference}}"),
        ("{{a}}", 6, "a value alone is no condition, write {{ok}} == true"),
        ("{{a}} = 1", 7, "write == to compare"),
        ("{{a}} && 1", 7, "write AND"),
        ("{{a}} exists || {{b}} exists", 14, "write OR, or put the fallback into one reference"),
        ("!{{a}} exists", 1, "write NOT, or !="),
        ("{{a}} == yes", 10, "references stand in {{ }} and texts in quotes"),
        ("risk.score > 1", 1, "references stand in {{ }} and texts in quotes"),
        ("{{a}} >", 8, "the condition ends here, expected a {{reference}}"),
        ("{{a}} == ?", 10, "expected a {{reference}}"),
        ("{{a}} == 'x", 10, "this text has no closing quote"),
        ('{{a}} == "x', 10, "this text has no closing quote"),
        (r'{{a}} == "\x"', 10, "not valid JSON"),
        ("{{a}} == 01", 10, "not valid JSON"),
        ("{{a}} == [1 2]", 13, "expected , or ]"),
        ("{{a}} == [1", 12, "the condition ends here, expected , or ]"),
        ("{{a} == 1", 1, "no }} closes this {{"),
        ("({{a}} exists", 14, "the condition ends here, expected AND, OR or )"),
        ("{{a}} exists)", 13, "expected AND, OR or the end"),
        ("{{a}} exists {{b}} exists", 14, "expected AND, OR or the end"),
        ("{{a}} exists AND", 17, "the condition ends here"),
        ("{{a}} equalsb 1", 7, "expected an operator"),
        ("{{a}} == 5x", 10, "expected a {{reference}}"),
    ],
)
def test_an_error_names_the_place_and_what_was_expected(text: str, position: int, message: str) -> None:
    with pytest.raises(Rejection) as error:
        parse_condition(text)

    assert error.value.reason == "condition_invalid"
    assert error.value.message.startswith(f"at character {position} of ")
    assert message in error.value.message


def test_an_error_inside_of_a_reference_counts_from_the_beginning_of_the_condition() -> None:
    with pytest.raises(Rejection, match=r"^at character 22 of ") as error:
        parse_condition("{{a}} exists AND {{b..c}} exists")

    assert error.value.reason == "template_invalid"


def test_an_error_inside_of_a_text_names_both_places() -> None:
    with pytest.raises(Rejection, match=r"^at character 10 of .*in this value, at character 3 of '\{\{\}\}'") as error:
        parse_condition("{{a}} == '{{}}'")

    assert error.value.reason == "template_invalid"


@pytest.mark.parametrize(
    "nest",
    [
        lambda depth: "NOT " * depth + "{{a}} exists",
        lambda depth: "(" * depth + "{{a}} exists" + ")" * depth,
        lambda depth: "{{a}} == " + "[" * depth + "]" * depth,
    ],
)
def test_nesting_has_an_end(nest: object) -> None:
    assert callable(nest)
    parse_condition(nest(MAX_DEPTH))

    assert reason_of(parse_condition, nest(MAX_DEPTH + 1)) == "condition_invalid"
    assert reason_of(parse_condition, nest(100_000)) == "condition_invalid"


def test_a_long_chain_is_no_nesting() -> None:
    assert holds(" AND ".join(["{{t}} == true"] * 5000))


@given(st.text("{}ab.|()'\"[],0=<> \\notandor", max_size=40))
def test_any_text_is_a_condition_or_a_rejection(text: str) -> None:
    assert reason_of(parse_condition, text) in {None, "condition_invalid", "template_invalid"}


@given(json_values.filter(lambda value: not isinstance(value, dict | list)))
def test_a_literal_means_its_value(value: JsonValue) -> None:
    literal = dumps(value).decode()
    if "{{" not in literal:
        assert evaluate(parse_condition(f"{{{{a}}}} == {literal}"), lookup_in({"a": value})).result
