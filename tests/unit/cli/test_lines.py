"""What a line of a published file becomes."""

import pytest

from schemas.errors import Rejection
from schemas.exact_json import dumps
from schemas.registry import OUTBOUND
from topics.catalog import Topic
from workers.cli.publish import record_of_line

OUTPUT = {"activity_id": "a", "output": {"n": 1}}
WRITE = {"scope": "shared", "subject": "workflow-global", "key": "k", "type": "Integer", "value": 1}


def event(event_type: str, data: object, **attributes: str) -> dict[str, object]:
    return {"specversion": "1.0", "id": "1", "source": "/s", "type": event_type, **attributes, "data": data}


def test_an_events_bytes_are_published_as_they_stand() -> None:
    line = b'{"data": {"variables": {"n": 1.50}},  "type":"variables.set","specversion":"1.0","id":"1","source":"/s","subject":"r"}'

    record = record_of_line(line)

    assert (record.topic, record.key, record.value) == (Topic.EXECUTION_EVENTS, b"r", line)


def test_outputs_are_split_off_on_request() -> None:
    line = dumps(event("activity.completed", OUTPUT, subject="r"))

    assert record_of_line(line).topic is Topic.EXECUTION_EVENTS
    assert record_of_line(line, by_type=True).topic is Topic.ACTIVITY_OUTPUTS


def test_a_memory_command_goes_to_its_address() -> None:
    record = record_of_line(dumps(event("memory.write", WRITE)))

    assert (record.topic, record.key) == (Topic.MEMORY_COMMANDS, b"default/shared/-/-/-/k")


def test_a_line_may_say_itself_where_to() -> None:
    wrapped = {
        "topic": "activity-outputs",
        "key": "elsewhere",
        "event": event("activity.completed", OUTPUT, subject="r"),
    }

    record = record_of_line(dumps(wrapped))

    assert (record.topic, record.key) == (Topic.ACTIVITY_OUTPUTS, b"elsewhere")


@pytest.mark.parametrize(
    ("wrapped", "key"),
    [
        ({"topic": "activity-outputs", "event": event("activity.completed", OUTPUT, subject="r")}, b"r"),
        ({"topic": "memory-commands", "event": event("memory.write", WRITE)}, b"default/shared/-/-/-/k"),
        ({"topic": "memory-commands", "key": None, "event": event("memory.write", WRITE)}, None),
    ],
)
def test_the_key_of_such_a_line_is_optional_and_may_be_none(wrapped: dict[str, object], key: bytes | None) -> None:
    assert record_of_line(dumps(wrapped)).key == key


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{oops", "malformed"),
        (b"[1]", "malformed"),
        (b"{}", "envelope_invalid"),
        (dumps(event("variables.st", {})), "unknown_type"),
        (dumps(event("variables.set", {"variables": {}})), "subject_required"),
        (dumps({"topic": "dead-letters", "event": event("memory.write", WRITE)}), "data_invalid"),
        (dumps({"topic": "memory-commands", "events": []}), "data_invalid"),
        (dumps({"topic": "memory-commands", "key": 7, "event": event("memory.write", WRITE)}), "data_invalid"),
        (dumps({"topic": "memory-commands", "event": event("variables.set", {}, subject="r")}), "unknown_type"),
    ],
)
def test_a_line_that_is_no_event_is_refused(line: bytes, code: str) -> None:
    with pytest.raises(Rejection) as refused:
        record_of_line(line)

    assert refused.value.reason == code


@pytest.mark.parametrize("name", ["nothing.like.it", "memory.writes"])
def test_an_unknown_type_is_told_what_may_be_published(name: str) -> None:
    with pytest.raises(Rejection) as refused:
        record_of_line(dumps(event(name, {})))

    message = refused.value.message
    assert "memory.write" in message
    assert [known for known in OUTBOUND if known in message.replace(name, "")] == []


RUN = {"subject": "r"}
ONE_NODE = {**WRITE, "node_id": "n"}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (event("memory.write", {**WRITE, "scope": "workflow"}), "workflow_required"),
        (event("memory.write", {**WRITE, "ttl": 3}), "ttl_invalid"),
        (event("memory.write", {**ONE_NODE, "ttl": 3}, **RUN), "ttl_invalid"),
        (event("memory.write", {**WRITE, "value": "one"}), "type_mismatch"),
        (event("variables.set", {"variables": {"system.x": 1}}, **RUN), "reserved_name"),
        (event("variables.set", {"variables": {"a": "{{b"}}, **RUN), "template_invalid"),
        (event("activity.completed", {**OUTPUT, "activity_id": "input"}, **RUN), "reserved_name"),
    ],
)
def test_what_a_worker_would_refuse_whatever_is_stored_is_not_published(line: dict[str, object], code: str) -> None:
    topic = Topic.EXECUTION_EVENTS if "subject" in line else Topic.MEMORY_COMMANDS

    for text in (line, {"topic": topic.value, "event": line}):
        with pytest.raises(Rejection) as refused:
            record_of_line(dumps(text))
        assert refused.value.reason == code


def test_what_belongs_to_a_run_needs_one_where_it_is_sent() -> None:
    with pytest.raises(Rejection) as refused:
        record_of_line(dumps({"topic": "execution-events", "event": event("memory.write", WRITE)}))

    assert refused.value.reason == "subject_required"


@pytest.mark.parametrize(
    "line",
    [
        event("memory.write", {**WRITE, "type": "OfAPlugIn"}),
        event("memory.write", {**ONE_NODE, "ttl": 3, "ttl_unit": "hours"}, **RUN),
        event("execution.started", {"workflow": {"name": "w"}, "simulation": True}, **RUN),
        event(
            "execution.started", {"workflow": {"name": "w"}, "forked_from": {"execution_id": "x", "revision": 1}}, **RUN
        ),
        event("variables.set", {"variables": {"a.b": "{{later.on}}"}}, **RUN),
    ],
)
def test_what_only_a_worker_can_tell_is_published(line: dict[str, object]) -> None:
    assert record_of_line(dumps(line)).value == dumps(line)
