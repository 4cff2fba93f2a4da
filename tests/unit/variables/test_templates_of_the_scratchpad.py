"""Seed 001's forms in single braces, beside `{{references}}`."""

import pytest
from hypothesis import given

from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue, dumps
from tests.support.json_values import json_values, lookup_in
from workers.logic.variables.templates import parse_scratchpad_template

STORE: JsonObject = {
    "last_output": {"text": "hi"},
    "last_output_parsed": {"operation": "append"},
    "memory_manager": {"operation": "append"},
    "state": {"customer": "C-1", "first name": "Ada"},
    "input": {"note": "n"},
    "event": {"body": [1]},
    "outputs": {"node-1": {"parsed": 5}},
    "memory": {"conversation": {"messages": ["m"]}},
    "agent": {"text": "t"},
}


def render(template: JsonValue) -> JsonValue:
    return parse_scratchpad_template(template).render(lookup_in(STORE))[0]


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("{last_output}", {"text": "hi"}),
        ("{last_output.text}", "hi"),
        ("{last_output_parsed}", {"operation": "append"}),
        ("{memory_manager.operation}", "append"),
        ("{state.customer}", "C-1"),
        ("{state.first name}", "Ada"),
        ("{ input.note }", "n"),
        ("{input}", {"note": "n"}),
        ("{event.body}", [1]),
        ("{event.body.0}", 1),
        ("{outputs.node-1.parsed}", 5),
        ("{memory.conversation.messages}", ["m"]),
        ("{state.absent}", None),
        ("{{agent.text}}", "t"),
        ("{{state.absent || state.customer}}", "C-1"),
    ],
)
def test_a_form_alone_keeps_the_type(form: str, value: JsonValue) -> None:
    assert render(form) == value


def test_forms_inside_text_become_text() -> None:
    assert render("{state.customer}: {event.body} {{agent.text}}{state.absent}") == "C-1: [1] t"
    assert render(["{input.note}", {"k": "{input.note}"}]) == ["n", {"k": "n"}]


@pytest.mark.parametrize(
    "text",
    [
        '{"state": {"x": 1}}',
        '{"a":{"b":{"c":1}}}',
        "{}",
        "{agent.text}",
        "{states.x}",
        "{state: 1}",
        "{state.x: 1}",
        "{input. See the docs}",
        "{input.}",
        "{state.x || input.note}",
        "{last_output_other}",
        "{ return state.x; }",
        "{state.x",
        "state.x}",
    ],
)
def test_any_other_text_in_braces_stays_as_it_is(text: str) -> None:
    assert render(text) == text


@given(json_values)
def test_json_in_a_text_survives(value: JsonValue) -> None:
    text = dumps({"state": value, "input": [value]}).decode()
    if "{{" not in text and "{state" not in text:
        assert render(text) == text


def test_a_form_in_json_text_is_filled() -> None:
    assert render('{"customer": "{state.customer}", "body": {event.body}}') == '{"customer": "C-1", "body": [1]}'


def test_written_braces_do_not_become_a_form() -> None:
    assert render('{{"{{"}}state.customer}}') == "{{state.customer}}"


def test_data_is_not_expanded() -> None:
    template = parse_scratchpad_template("{state.x}{{state.x}}")

    assert template.render(lookup_in({"state": {"x": "{state.y}{{state.y}}", "y": 1}}))[0] == "{state.y}{{state.y}}" * 2


def test_a_long_text_is_read_like_a_short_one() -> None:
    assert render("x" * 3000 + "{state.customer}") == "x" * 3000 + "C-1"


def test_an_unclosed_reference_is_an_error_here_too() -> None:
    with pytest.raises(Rejection, match=r"no }} closes this \{\{"):
        parse_scratchpad_template("{{last_output}")
