"""JSON with `{{references}}` in its texts (docs/references.md)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue, dumps, loads
from tests.support.json_values import json_objects, json_values, lookup_in, texts
from workers.logic.variables.references import Read, parse_reference
from workers.logic.variables.templates import as_text, parse_template, reference_template


def render(template: JsonValue, store: JsonObject) -> JsonValue:
    return parse_template(template).render(lookup_in(store))[0]


@given(json_values)
def test_a_value_that_is_one_reference_keeps_its_type(value: JsonValue) -> None:
    assert dumps(render("{{a}}", {"a": value})) == dumps(value)


@pytest.mark.parametrize(
    "literal", [b"23843037174560269", b"12345678901234567890", b"100.00", b"0.1234567890123456789", b"1e5"]
)
def test_a_number_comes_out_as_it_went_in_alone_and_inside_text(literal: bytes) -> None:
    """No float on the way (digdag#916, camunda#12473)."""
    store = {"a": {"num": loads(literal)}}

    assert dumps(render("{{a.num}}", store)) == literal
    assert render("n={{ a.num }}.", store) == f"n={literal.decode()}."


def test_inside_text_null_is_empty_booleans_are_words_and_objects_compact_json() -> None:
    store: JsonObject = {"n": None, "t": True, "o": {"a": [1, "ü"]}, "s": "x"}

    assert render("<{{n}}|{{absent}}|{{t}}|{{o}}|{{s}}>", store) == '<||true|{"a":[1,"ü"]}|x>'


def test_white_space_beside_a_reference_makes_it_text() -> None:
    assert render(" {{a}}", {"a": 1}) == " 1"


def test_texts_in_objects_and_lists_are_templates_and_keys_are_not() -> None:
    template: JsonValue = {"{{a}}": ["{{a}}", {"deep": "{{a}}!"}, 7, None]}

    assert render(template, {"a": 1}) == {"{{a}}": [1, {"deep": "1!"}, 7, None]}


def test_references_are_listed_in_order_and_once() -> None:
    template = parse_template({"x": "{{b}} {{a}}", "y": ["{{b}}", "{{ c || a }}"], "z": {"w": "{{a}}"}})

    assert [str(reference) for reference in template.references] == ["b", "a", "c || a"]
    assert [read.path for read in template.render(lookup_in({"a": 1}))[1]] == ["b", "a", "a"]


def test_a_single_reference_reports_its_read() -> None:
    assert parse_template("{{a}}").render(lookup_in({"a": 1})) == (1, (Read("a", found=True, fallback=False),))
    assert reference_template(parse_reference("a")).render(lookup_in({"a": 1}))[0] == 1


def test_a_value_without_references_is_handed_out_as_it_is() -> None:
    value: JsonValue = {"a": ["{b}", {"c": 1}]}
    template = parse_template(value)

    rendered, reads = template.render(lookup_in({}))

    assert rendered is value
    assert (template.references, reads) == ((), ())


@given(json_values)
def test_rendering_never_expands_data(value: JsonValue) -> None:
    store: JsonObject = {"a": value, "secret": "expanded"}

    assert render({"v": "{{a}}"}, store) == {"v": value}
    assert render("<{{a}}>", store) == f"<{as_text(value)}>"


@given(st.lists(texts, max_size=3))
def test_data_that_looks_like_a_reference_stays_data(parts: list[str]) -> None:
    text = "{{secret}}".join(parts) + "{{secret}}"

    assert render(["{{a}}", "{{a}}{{a}}"], {"a": text, "secret": "expanded"}) == [text, text + text]


@given(json_objects.filter(lambda value: b"{{" not in dumps(value)), json_objects)
def test_json_without_double_braces_renders_to_itself(template: JsonObject, store: JsonObject) -> None:
    assert render(template, store) == template


def test_two_braces_are_written_as_a_quoted_text() -> None:
    assert render("""{{"{{"}}a}} {{ '{{' }}b}}""", {"a": 1}) == "{{a}} {{b}}"
    assert render({"x": ['{{"{{"}}']}, {}) == {"x": ["{{"]}
    assert render('{{"{{"}}{{a}}', {"a": 1}) == "{{1"


def test_the_last_two_of_a_run_of_braces_open_a_reference() -> None:
    assert render("{{{name}}: 1}", {"name": "n"}) == "{n: 1}"
    assert render("{{{{name}}}}", {"name": "n"}) == "{{n}}"


def test_single_braces_and_closing_braces_are_text() -> None:
    text = '{"a":{"b":1}} {state.x} }}'

    assert render(text, {"state": {"x": 1}}) == text


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("Dear {{name", "^at character 6 of 'Dear {{name': no }} closes this {{"),
        ("{{}}", "^at character 3 of '{{}}': a name is missing here"),
        ("{{a}} {{b..c}}", "^at character 11 of '{{a}} {{b..c}}': a name is missing here"),
        ("{{a {{b}}", "^at character 5 of '{{a {{b}}': a name cannot hold '{'"),
        ({"v": {"w": [1]}, "x": ["ok", {"y": "{{"}]}, "^in 'x.1.y', at character 1 of '{{': no }}"),
        ("x" * 2000 + "{{", "^at character 2001 of …'x{20}{{': no }}"),
    ],
)
def test_an_error_names_the_place_in_the_value_and_in_the_text(template: JsonValue, message: str) -> None:
    with pytest.raises(Rejection, match=message) as error:
        parse_template(template)

    assert error.value.reason == "template_invalid"


def test_a_long_text_renders_as_a_short_one() -> None:
    assert render("x" * 3000 + "{{a}}", {"a": 1}) == "x" * 3000 + "1"


@pytest.mark.parametrize("template", ["{{a}}" * 30, ["{{a}}"] * 30, {"x": ["{{o}}"] * 30}])
def test_many_references_to_a_large_value_are_refused_before_they_are_put_in(template: JsonValue) -> None:
    store: JsonObject = {"a": "x" * 100, "o": {"k": "x" * 100}}

    with pytest.raises(Rejection, match="more than the 2000 bytes") as error:
        parse_template(template).render(lookup_in(store), max_bytes=2000)

    assert error.value.reason == "result_too_large"
