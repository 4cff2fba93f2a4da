"""Every event type of the contract has a model, a topic and examples that survive a round trip."""

import ast
from pathlib import Path

import pytest

import schemas
from schemas.codes import CODES
from schemas.exact_json import canonical
from schemas.registry import ALL_TYPES, COMMAND_TOPIC, INBOUND, REQUEST_TYPES, data_of, parse, parse_command
from topics.catalog import Topic
from topics.codec import decode, encode

ROOT = Path(schemas.__file__).parent
EXAMPLES = sorted((ROOT / "examples").glob("*/*.json"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_an_example_survives_decoding_parsing_and_encoding(path: Path) -> None:
    event = decode(path.read_bytes())

    data = parse(event)

    assert event.type == path.parent.name
    assert canonical(data_of(data)) == canonical(event.data)
    assert encode(decode(encode(event))) == encode(event)


def test_every_type_has_an_example() -> None:
    assert {path.parent.name for path in EXAMPLES} == set(ALL_TYPES)


def test_every_type_with_two_forms_has_an_example_of_each() -> None:
    for name in INBOUND:
        seen = {decode(path.read_bytes()).subject is None for path in EXAMPLES if path.parent.name == name}
        assert seen == ({True, False} if COMMAND_TOPIC in INBOUND[name].topics else {False}), name


def test_an_example_uses_each_field_of_what_others_publish() -> None:
    for name, spec in INBOUND.items():
        for model in spec.models:
            used = {
                field
                for path in EXAMPLES
                if path.parent.name == name and type(data := parse(decode(path.read_bytes()))) is model
                for field in data.model_fields_set
            }
            needed = {field for field, info in model.model_fields.items() if info.is_required()}
            assert needed <= used, (name, model.__name__)


def test_every_topic_of_a_type_is_in_the_catalog() -> None:
    known = {topic.value for topic in Topic}

    for spec in ALL_TYPES.values():
        assert set(spec.topics) <= known, spec.name


def test_every_answer_is_a_known_type() -> None:
    for spec in INBOUND.values():
        assert set(spec.answer) <= set(ALL_TYPES), spec.name


def test_requests_are_the_types_that_are_answered() -> None:
    facts = {"execution.started", "execution.completed", "execution.failed", "execution.cancelled"}
    facts |= {"activity.completed", "activity.failed", "variables.set"}

    assert set(INBOUND) - facts == REQUEST_TYPES


def test_a_command_of_the_variable_worker_parses_with_its_subject() -> None:
    command = decode((ROOT / "examples/memory.write/command.json").read_bytes())

    assert parse_command(command) == parse(command)


def test_every_code_that_is_raised_is_documented() -> None:
    raised = {code for root in ("schemas", "topics", "workers") for code in _codes_raised(ROOT.parent / root)}

    assert raised - CODES.keys() == set()


def _codes_raised(root: Path) -> set[str]:
    return {
        node.args[0].value
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Rejection"
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }
