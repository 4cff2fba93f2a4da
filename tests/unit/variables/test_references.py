"""`{{a.b || c.d}}`: the grammar and the look-up (docs/references.md)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import Rejection
from schemas.exact_json import JsonValue
from schemas.limits import DEFAULT_LIMITS
from schemas.names import check_spelling
from tests.support.json_values import json_values, lookup_in, names, reason_of, texts
from workers.logic.variables.references import MISSING, Path, Read, Reference, descend, parse_reference, resolve

references = st.lists(st.lists(names, min_size=1, max_size=4), min_size=1, max_size=3).map(
    lambda paths: Reference(tuple(Path(tuple(segments)) for segments in paths))
)
STORE = {"agent": {"findings": ["first", {"severity": "high"}], "score": None, "0": "key"}, "text": "abc"}


def paths_of(text: str) -> list[str]:
    return [str(path) for path in parse_reference(text).paths]


def test_a_path_is_names_joined_by_dots() -> None:
    assert parse_reference("a.b.0").paths == (Path(("a", "b", "0")),)


def test_paths_are_joined_by_double_bars_and_white_space_is_free() -> None:
    assert paths_of("agent.score||defaults.score") == ["agent.score", "defaults.score"]
    assert paths_of("  agent . score\n || \t defaults.score ") == ["agent.score", "defaults.score"]


def test_names_may_hold_dashes_inner_spaces_and_any_letters() -> None:
    assert paths_of("node-1.first name.größe") == ["node-1.first name.größe"]


def test_both_sides_of_a_fallback_are_paths_and_never_literals() -> None:
    assert paths_of("a || 'none' || 0") == ["a", "'none'", "0"]


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 1),
        ("   ", 1),
        (".a", 1),
        ("a..b", 3),
        ("a.", 3),
        ("a || ", 5),
        ("|| a", 1),
        ("a | b", 3),
        ("a ||| b", 5),
        ("a.{b", 3),
        ("ab}", 3),
        ("a\x00b", 2),
        ("x" * 2000 + "..b", 2002),
    ],
)
def test_an_error_names_the_place(text: str, position: int) -> None:
    with pytest.raises(Rejection, match=f"^at character {position} of ") as error:
        parse_reference(text)

    assert error.value.reason == "template_invalid"


def test_an_error_shows_the_surroundings_of_a_long_text() -> None:
    with pytest.raises(Rejection, match=r"…'x{19}[.][.]b{19}'…: a name is missing here") as error:
        parse_reference("x" * 100 + ".." + "b" * 100)

    assert len(error.value.message) < 200


@given(references)
def test_what_is_printed_parses_to_the_same(reference: Reference) -> None:
    parsed = parse_reference(str(reference))

    assert parsed == reference
    assert hash(parsed) == hash(reference)


@given(names)
def test_every_allowed_name_can_be_referenced(name: str) -> None:
    check_spelling(name, "the name", DEFAULT_LIMITS)

    assert parse_reference(name).paths == (Path((name,)),)


@given(st.text(max_size=30))
def test_any_text_is_a_reference_or_a_rejection(text: str) -> None:
    assert reason_of(parse_reference, text) in {None, "template_invalid"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("agent.findings.0", "first"),
        ("agent.findings.1.severity", "high"),
        ("agent.score", None),
        ("agent.0", "key"),
        ("agent.findings.2", MISSING),
        ("agent.findings.-1", MISSING),
        ("agent.findings.01", MISSING),
        ("agent.findings.1.0", MISSING),
        ("agent.findings.²", MISSING),
        ("agent.findings.\u0660", MISSING),
        ("agent.findings.9999999999999999999999", MISSING),
        ("agent.findings.first", MISSING),
        ("agent.absent", MISSING),
        ("agent.score.deeper", MISSING),
        ("text.0", MISSING),
        ("text.length", MISSING),
    ],
)
def test_objects_are_entered_by_key_and_lists_by_decimal_index(path: str, value: object) -> None:
    assert descend(STORE, path.split(".")) == value


@given(json_values, st.lists(texts, max_size=5))
def test_no_path_into_any_value_raises(value: JsonValue, segments: list[str]) -> None:
    descend(value, segments)


def test_the_first_path_that_is_not_null_wins() -> None:
    lookup = lookup_in({"primary": {"email": None}, "secondary": {"email": "b@x"}, "third": 3})

    assert resolve(parse_reference("primary.email || secondary.email || third"), lookup) == (
        "b@x",
        Read("secondary.email", found=True, fallback=True),
    )
    assert resolve(parse_reference("third || primary"), lookup) == (3, Read("third", found=True, fallback=False))


def test_false_zero_and_empty_are_values() -> None:
    lookup = lookup_in({"no": False, "zero": 0, "empty": ""})

    assert [resolve(parse_reference(f"{name} || other"), lookup)[0] for name in ("no", "zero", "empty")] == [
        False,
        0,
        "",
    ]


def test_what_is_not_stored_is_null_and_not_found() -> None:
    """An absent field is no error (sim#2798)."""
    assert resolve(parse_reference("a.b || c"), lookup_in({})) == (None, Read("a.b", found=False, fallback=False))


def test_a_stored_null_is_found() -> None:
    lookup = lookup_in({"a": None, "b": None})

    assert resolve(parse_reference("a || b"), lookup) == (None, Read("a", found=True, fallback=False))
    assert resolve(parse_reference("x || b"), lookup) == (None, Read("b", found=True, fallback=True))


@given(references, st.dictionaries(names, json_values, max_size=4))
def test_resolving_never_raises(reference: Reference, store: dict[str, JsonValue]) -> None:
    value, read = resolve(reference, lookup_in(store))

    assert read.found or value is None


def test_a_path_deeper_than_any_value_is_refused() -> None:
    with pytest.raises(Rejection) as refused:
        parse_reference(".".join(["a"] * 200_000))

    assert refused.value.reason == "template_invalid"
    assert len(parse_reference(".".join(["a"] * 100)).paths[0].segments) == 100
