"""docs/references.md: every example gives what the guide says."""

import re
from pathlib import Path

import pytest

from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue, dumps, loads
from tests.support.json_values import lookup_in
from workers.logic.variables.conditions import evaluate, parse_condition
from workers.logic.variables.templates import parse_scratchpad_template, parse_template

GUIDE = (Path(__file__).parents[3] / "docs/references.md").read_text()
_ROW = re.compile(r"^\| `(.*)` \| `(.*)` \|$")


def store() -> JsonObject:
    block = re.search(r"```json\n(.*?)```", GUIDE, re.DOTALL)
    assert block
    parsed = loads(block[1].encode())
    assert isinstance(parsed, dict)
    return parsed


def rows(heading: str) -> list[tuple[str, str]]:
    """Give the example rows of every table whose first column is called `heading`."""
    found: list[tuple[str, str]] = []
    inside = False
    for line in GUIDE.splitlines():
        inside = line.startswith(f"| {heading} |") or (inside and line.startswith("|"))
        row = _ROW.match(line)
        if inside and row:
            found.append((row[1].replace(r"\|", "|"), row[2].replace(r"\|", "|")))
    return found


def written(text: str) -> JsonValue:
    return loads(text.encode()) if text.startswith('{"') else text


@pytest.mark.parametrize(("template", "result"), rows("Written"))
def test_a_template_gives_what_the_guide_says(template: str, result: str) -> None:
    value, _ = parse_template(written(template)).render(lookup_in(store()))

    assert dumps(value) == dumps(loads(result.encode()))


@pytest.mark.parametrize(("template", "result"), rows("Written for the scratchpad"))
def test_a_short_form_gives_what_the_guide_says(template: str, result: str) -> None:
    value, _ = parse_scratchpad_template(template).render(lookup_in(store()))

    assert dumps(value) == dumps(loads(result.encode()))


@pytest.mark.parametrize(("condition", "result"), rows("Condition"))
def test_a_condition_holds_as_the_guide_says(condition: str, result: str) -> None:
    parsed = parse_condition(condition)

    if result == "comparison_invalid":
        with pytest.raises(Rejection, match="makes no sense"):
            evaluate(parsed, lookup_in(store()))
    else:
        assert evaluate(parsed, lookup_in(store())).result is loads(result.encode())


def test_the_guide_has_examples_of_each_kind() -> None:
    assert [len(rows(heading)) for heading in ("Written", "Written for the scratchpad", "Condition")] == [22, 6, 10]
