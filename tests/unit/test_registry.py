"""What `parse` accepts, what it refuses, and how it says so."""

from decimal import Decimal

import pytest

from schemas.envelope import Event
from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue, dumps
from schemas.executions import ExecutionStarted
from schemas.memory import MemoryWriteCommand, MemoryWriteRequest
from schemas.registry import data_of, parse
from topics.codec import decode

COMMAND: JsonObject = {
    "scope": "shared",
    "subject": {"kind": "patient", "id": "P-4711"},
    "key": "creatinine",
    "type": "Decimal",
    "value": 1,
}
REQUEST: JsonObject = {**COMMAND, "node_id": "save", "subject": "patient"}


def event(event_type: str, data: JsonObject, subject: str | None = "run-1") -> Event:
    return Event(id="1", source="/tests", type=event_type, subject=subject, data=data)


def refusal(event_type: str, data: JsonObject, subject: str | None = "run-1") -> Rejection:
    with pytest.raises(Rejection) as caught:
        parse(event(event_type, data, subject))
    return caught.value


def test_numbers_pass_through_as_they_were_written() -> None:
    value = b'{"a":100.00,"b":23843037174560269,"c":12345678901234567890,"d":0.1234567890123456789,"e":1e5,"f":-0}'
    text = b'{"specversion":"1.0","id":"1","source":"/s","type":"activity.completed","subject":"x",'
    received = decode(text + b'"data":{"activity_id":"a","output":' + value + b"}}")

    assert dumps(data_of(parse(received))["output"]) == value


def test_a_value_is_the_same_object_and_not_a_copy() -> None:
    output: JsonObject = {"deep": [Decimal("1.0")]}

    parsed = parse(event("activity.completed", {"activity_id": "a", "output": output}))

    assert getattr(parsed, "output") is output  # noqa: B009 - the static type is the base


def test_a_memory_type_is_a_request_with_a_subject_and_a_command_without() -> None:
    assert isinstance(parse(event("memory.write", REQUEST)), MemoryWriteRequest)
    assert isinstance(parse(event("memory.write", COMMAND, subject=None)), MemoryWriteCommand)


def test_an_unknown_type_is_refused_with_the_near_ones() -> None:
    refused = refusal("memory.wirte", {})

    assert refused.reason == "unknown_type"
    assert "did you mean memory.write" in refused.message


def test_an_execution_scoped_type_needs_its_subject() -> None:
    assert refusal("execution.started", {"workflow": {"name": "w"}}, subject=None).reason == "subject_required"


@pytest.mark.parametrize(
    ("event_type", "data", "words"),
    [
        ("memory.write", {**REQUEST, "expected_versoin": 1}, "data.expected_versoin is not a field of memory.write; did you mean expected_version?"),
        ("execution.started", {"workflow": {"name": "w", "verison": "1"}}, "data.workflow.verison is not a field of execution.started; did you mean version?"),
        ("execution.started", {"workflow": {"name": "w"}, "contract": {"inputs": [{"name": "a", "type": "String", "requird": True}]}}, "data.contract.inputs.0.requird is not a field of execution.started; did you mean required?"),
        ("variables.set", {"variables": {}, "iteration": [{"node_id": "n", "index": 0, "x": 1}]}, "data.iteration.0.x is not a field of variables.set; known are: node_id, index"),
        ("execution.started", {}, "data.workflow is missing; execution.started needs it"),
        ("activity.completed", {"activity_id": "a", "output": {}, "variables": [1]}, "data.variables should be an object; got [1]"),
        ("activity.completed", {"activity_id": 7, "output": {}}, "data.activity_id should be a text; got 7"),
        ("scratchpad.append", {"node_id": "n", "key": "k", "max_items": 1001}, "data.max_items should be less than or equal to 1000; got 1001"),
        ("scratchpad.write", {"node_id": "n", "key": ""}, 'data.key should not be empty; got ""'),
        ("condition.evaluate", {"node_id": "n"}, "data should have either condition or branches, and not both"),
        ("memory.write", {**REQUEST, "expected_version": Decimal("1.5")}, "data.expected_version should be a whole number from 0"),
        ("memory.write", {**REQUEST, "expected_version": True}, "data.expected_version should be a whole number from 0"),
    ],
)  # fmt: skip
def test_wrong_data_is_refused_in_one_line_that_names_the_field(event_type: str, data: JsonObject, words: str) -> None:
    refused = refusal(event_type, data)

    assert refused.reason == "data_invalid"
    assert words in refused.message
    assert "\n" not in refused.message


def test_a_long_value_is_shortened_in_the_message() -> None:
    refused = refusal("activity.completed", {"activity_id": "a", "output": {}, "variables": "x" * 10_000})

    assert len(refused.message) < 200


@pytest.mark.parametrize("subject", ["patient", {"kind": "patient"}, {"kind": "patient", "id": 7}, None])
def test_a_command_names_its_subject_completely(subject: object) -> None:
    assert refusal("memory.write", {**COMMAND, "subject": subject}, subject=None).reason == "data_invalid"  # type: ignore[dict-item]


def test_an_absent_subject_is_an_error_and_never_global() -> None:
    without = {name: value for name, value in COMMAND.items() if name != "subject"}

    assert "data.subject is missing" in refusal("memory.write", without, subject=None).message


@pytest.mark.parametrize("subject", [None, "run-1"])
@pytest.mark.parametrize("given", [{"conditional": True}, {"expected_version": None}, {"expected_version": "  "}])
def test_a_condition_without_a_version_is_still_seen_as_conditional(given: JsonObject, subject: str | None) -> None:
    base = COMMAND if subject is None else REQUEST

    parsed = parse(event("memory.write", {**base, **given}, subject))

    assert isinstance(parsed, (MemoryWriteCommand, MemoryWriteRequest))
    assert parsed.is_conditional


@pytest.mark.parametrize(
    ("after", "awaited"),
    [(None, ()), ("reader", ("reader",)), (["reader", "save.version"], ("reader", "save.version"))],
)
def test_a_request_may_wait_for_one_node_or_several(after: JsonValue, awaited: tuple[str, ...]) -> None:
    parsed = parse(event("memory.write", {**REQUEST, "after": after}))

    assert isinstance(parsed, MemoryWriteRequest)
    assert parsed.awaited == awaited


@pytest.mark.parametrize(("simulation", "simulated"), [(None, False), (False, False), (True, True), ({}, True)])
def test_a_simulation_may_be_asked_for_in_one_word(simulation: JsonValue, simulated: bool) -> None:
    parsed = parse(event("execution.started", {"workflow": {"name": "w"}, "simulation": simulation}))

    assert isinstance(parsed, ExecutionStarted)
    assert parsed.simulated is simulated


def test_readers_ignore_what_a_newer_worker_added() -> None:
    data: JsonObject = {"command_id": "1", "command_source": "/s", "address": "a", "version": 0, "shard": 4}

    assert data_of(parse(event("memory.missing", data))) == {name: data[name] for name in data if name != "shard"}


def test_a_message_that_quotes_too_much_keeps_its_beginning_and_its_end() -> None:
    message = Rejection("data_invalid", f"the name {'x' * 1_000_000} is wrong; choose another").message

    assert message.startswith("the name xxx")
    assert message.endswith("xxx is wrong; choose another")
    assert len(message) < 3000


@pytest.mark.parametrize(
    "data",
    [
        {"workflow": {"name": "a\x00b"}},
        {"workflow": {"name": "x" * 1025}},
        {"workflow": {"name": "w"}, "parent": {"execution_id": "\x00", "node_id": "n"}},
        {"workflow": {"name": "w"}, "forked_from": {"execution_id": "\x00", "revision": 1}},
        {
            "workflow": {"name": "w"},
            "parent": {"execution_id": "p", "node_id": "n", "iteration": [{"node_id": "l", "index": 0}] * 65},
        },
    ],
)
def test_names_that_could_not_be_kept_or_answered_are_refused(data: dict) -> None:
    with pytest.raises(Rejection) as refused:
        parse(Event(id="1", source="/s", type="execution.started", subject="run", data=data))

    assert refused.value.reason == "data_invalid"
