"""What is read at once is what the model reads, and comes to the same command."""

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from schemas.envelope import Event
from schemas.errors import Rejection
from schemas.exact_json import dumps, loads
from schemas.memory import MemoryWriteCommand
from schemas.plain import plain_write
from schemas.registry import parse_command
from tests.support.json_values import json_values, texts
from tests.support.memory_store import RULES, memory_event
from workers.logic.memory import commands
from workers.logic.memory.commands import Command, Write, understand

_names = st.text("ab-/é", min_size=1, max_size=3) | texts
_versions = st.integers(-1, 3) | st.sampled_from(["", "1", None, True])
_subjects = (
    st.just("workflow-global")
    | st.fixed_dictionaries({"kind": _names, "id": _names})
    | st.dictionaries(st.sampled_from(["kind", "id", "other"]), json_values, max_size=3)
)
_writers = st.none() | st.dictionaries(
    st.sampled_from(["execution_id", "workflow", "node_id", "user_id", "other"]), st.none() | _names, max_size=3
)
_data = st.fixed_dictionaries(
    {
        "scope": st.sampled_from(["workflow", "shared"]),
        "subject": _subjects,
        "key": _names,
        "type": st.sampled_from(["Json", "Integer", "String[]", "Unheard"]),
        "value": json_values,
    },
    optional={
        "workflow": st.none() | _names,
        "writer": _writers,
        "expected_version": _versions,
        "conditional": st.none() | st.booleans(),
        "read_version": _versions,
        "on_conflict": st.sampled_from(["fail", "merge", "other", None]),
        "ttl": st.none() | st.integers(-1, 100) | st.just("keep"),
        "ttl_unit": st.none() | st.sampled_from(["seconds", "weeks"]),
    },
)
_faults = st.dictionaries(
    st.sampled_from(["scope", "subject", "key", "type", "workflow", "writer", "ttl", "ttl_unit", "unknown"]),
    json_values,
    max_size=1,
)


def event_of(data: dict[str, object]) -> Event:
    # Through JSON, as every event comes.
    return Event(id="c-1", source="/s", type="memory.write", data=loads(dumps(data)))  # type: ignore[arg-type]


def understood(event: Event) -> Command | tuple[str, str]:
    try:
        return understand(event, RULES)
    except Rejection as refusal:
        return refusal.reason, refusal.message


@given(_data, _faults)
def test_what_is_plain_is_what_the_model_reads(data: dict[str, object], faults: dict[str, object]) -> None:
    event = event_of({**data, **faults})
    plain = plain_write(event)
    if plain is None:
        return

    model = parse_command(event)

    assert isinstance(model, MemoryWriteCommand)
    for name in ("scope", "key", "type", "value", "workflow", "read_version", "on_conflict", "ttl", "ttl_unit"):
        assert getattr(plain, name) == getattr(model, name)


@given(_data, _faults)
def test_both_ways_give_the_same_command(data: dict[str, object], faults: dict[str, object]) -> None:
    event = event_of({**data, **faults, "workflow": "w"})
    at_once = understood(event)
    with patch.object(commands, "plain_write", return_value=None):
        step_by_step = understood(event)

    assert at_once == step_by_step


def test_a_plain_write_is_read_at_once() -> None:
    event = memory_event("memory.write", type="Json", value={"a": [1, "x"]}, expected_version=3)

    assert plain_write(event) is not None
    request = understand(event, RULES).request
    assert isinstance(request, Write)
    assert request.expected == 3


def test_other_commands_are_not() -> None:
    assert plain_write(memory_event("memory.read", type="Json")) is None
