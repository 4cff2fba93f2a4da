"""Where a published event goes."""

import pytest

from schemas.envelope import Event
from schemas.errors import Rejection
from schemas.exact_json import JsonObject
from topics.catalog import Topic
from topics.routing import route

OUTPUT: JsonObject = {"activity_id": "a", "output": {}}
WRITE: JsonObject = {
    "scope": "shared",
    "subject": {"kind": "a/b", "id": "-"},
    "key": "k",
    "type": "Integer",
    "value": 1,
}


def event(event_type: str, data: JsonObject, subject: str | None = None, tenant: str = "default") -> Event:
    return Event(id="1", source="/tests", type=event_type, subject=subject, tenant=tenant, data=data)


def test_everything_of_an_execution_keeps_its_order_in_one_topic() -> None:
    assert route(event("activity.completed", OUTPUT, "run-1")) == (Topic.EXECUTION_EVENTS, b"run-1")
    assert route(event("memory.write", {**WRITE, "node_id": "n"}, "run-1")) == (Topic.EXECUTION_EVENTS, b"run-1")


def test_outputs_can_be_split_off() -> None:
    assert route(event("activity.completed", OUTPUT, "run-1"), by_type=True) == (Topic.ACTIVITY_OUTPUTS, b"run-1")
    scheduled = event("activity.scheduled", {"activity_id": "a"}, "run-1")
    assert route(scheduled, by_type=True) == (Topic.EXECUTION_EVENTS, b"run-1")


def test_a_memory_command_is_keyed_by_its_canonical_address() -> None:
    topic, key = route(event("memory.write", WRITE, tenant="north"))

    assert (topic, key) == (Topic.MEMORY_COMMANDS, b"north/shared/-/a%2Fb/%2D/k")


def test_commands_on_one_conversation_share_a_key() -> None:
    add = event("conversation.add", {"workflow": "chat", "id": "s-1", "role": "user", "content": "hi"})
    get = event("conversation.get", {"workflow": "chat", "id": "s-1"})

    assert route(add) == route(get) == (Topic.MEMORY_COMMANDS, b"default/workflow/chat/conversation/s-1/messages")


@pytest.mark.parametrize("event_type", ["memory.written", "variables.revised", "child.completed"])
def test_what_only_workers_write_is_not_published(event_type: str) -> None:
    with pytest.raises(Rejection):
        route(event(event_type, {}, "run-1"))
