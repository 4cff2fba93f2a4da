"""The AsyncAPI document and the JSON Schemas say what the models and the examples say."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

import schemas
from schemas.exact_json import JsonValue, loads
from schemas.registry import ALL_TYPES
from topics.asyncapi import CONTRACT_VERSION, document, examples, json_schema
from topics.catalog import CATALOG
from workers.cli.output import pretty

ROOT = Path(schemas.__file__).parent


def test_the_checked_in_document_is_current() -> None:
    """`tally asyncapi > schemas/asyncapi.json` writes it anew."""
    assert (ROOT / "asyncapi.json").read_text(encoding="utf-8") == pretty(document()) + "\n"


def test_the_document_has_every_public_topic_and_its_messages() -> None:
    channels = document()["channels"]

    assert isinstance(channels, dict)
    assert set(channels) == {spec.topic.value for spec in CATALOG if spec.direction != "internal"}


def test_every_reference_of_the_document_leads_somewhere() -> None:
    whole = loads(pretty(document()).encode())

    for reference in _references(whole):
        found = whole
        for part in reference.removeprefix("#/").split("/"):
            assert isinstance(found, dict)
            assert part in found, reference
            found = found[part]


def _references(value: JsonValue) -> Iterator[str]:
    if isinstance(value, dict):
        for name, part in value.items():
            if name == "$ref":
                yield str(part)
            else:
                yield from _references(part)
    elif isinstance(value, list):
        for part in value:
            yield from _references(part)


@pytest.mark.parametrize("name", sorted(ALL_TYPES))
def test_the_examples_conform_to_the_json_schema_of_their_type(name: str) -> None:
    schema = json_schema(name)

    jsonschema.Draft202012Validator.check_schema(schema)
    for _, event in examples(name):
        jsonschema.validate(event, schema)


def test_the_json_schema_refuses_what_parse_refuses() -> None:
    [(_, event), *_] = examples("memory.write")
    assert isinstance(event, dict)
    assert isinstance(event["data"], dict)

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**event, "data": {**event["data"], "expected_versoin": 1}}, json_schema("memory.write"))


def test_the_contract_and_the_package_have_one_version() -> None:
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))

    assert project["project"]["version"] == CONTRACT_VERSION
