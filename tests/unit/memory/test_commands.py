"""What is a command, what is refused with an outcome, what is a dead letter; and the events that go out."""

import pytest

from schemas.errors import Rejection
from schemas.registry import parse
from tests.support.memory_store import ADDRESS, RULES, Tables, memory_event
from topics.codec import decode, encode
from workers.logic.memory.commands import Broken, understand
from workers.logic.memory.events import changed_event, conflict_event, outcome_event, reply_key
from workers.logic.memory.expiry import purge


@pytest.mark.parametrize(
    ("event_type", "data", "code"),
    [
        ("memory.wirte", {}, "unknown_type"),
        ("execution.started", {}, "unknown_type"),
        ("memory.write", {"subject": None, "type": "Json", "value": 1}, "data_invalid"),
        ("memory.write", {"subject": "patient", "type": "Json", "value": 1}, "data_invalid"),
        ("memory.write", {"workflow": None, "type": "Json", "value": 1}, "workflow_required"),
        ("memory.write", {"scope": "shared", "type": "Json", "value": 1}, "workflow_required"),
        ("memory.write", {"key": "a\x00", "type": "Json", "value": 1}, "address_invalid"),
        ("memory.write", {"key": "k" * 1200, "type": "Json", "value": 1}, "address_too_long"),
    ],
)
def test_what_names_no_item_and_nobody_waits_for_is_a_dead_letter(event_type: str, data: dict, code: str) -> None:
    with pytest.raises(Rejection) as refused:
        understand(memory_event(event_type, None, None, **data), RULES)
    assert refused.value.reason == code


def test_what_names_no_item_is_answered_where_somebody_waits() -> None:
    command = understand(memory_event("memory.write", key="k" * 1200, type="Json", value=1), RULES)

    assert command.address is None
    assert isinstance(command.request, Broken)
    assert command.request.code == "address_too_long"


def test_a_subject_is_never_global_by_omission() -> None:
    with_subject = understand(memory_event("memory.read", type="Json", subject="workflow-global"), RULES)
    without = memory_event("memory.read", None, None, type="Json")
    del without.data["subject"]

    assert with_subject.address == "default/workflow/onboarding/-/-/stage"
    with pytest.raises(Rejection):
        understand(without, RULES)


def test_a_broken_command_that_names_its_item_is_answered() -> None:
    command = understand(memory_event("memory.write", None, None, type="Json", valeu=1), RULES)

    assert command.address == ADDRESS
    assert isinstance(command.request, Broken)
    assert command.request.code == "data_invalid"


def test_the_outcome_goes_to_the_execution_else_the_reply_key_else_the_address() -> None:
    tables = Tables()
    of_run, of_nobody = tables.decide(memory_event("memory.forget"), memory_event("memory.forget", None, None))

    assert (reply_key(of_run), reply_key(of_nobody)) == ("run-1", ADDRESS)


def test_what_is_caused_has_ids_of_its_own_that_every_delivery_repeats() -> None:
    event = memory_event("memory.write", "same", type="Integer", value=1)
    one, other = Tables().decide(event), Tables().decide(event)

    ids = {outcome_event(one[0]).id, changed_event(one[0].item).id}  # type: ignore[arg-type]
    assert len(ids) == 2
    assert ids == {outcome_event(other[0]).id, changed_event(other[0].item).id}  # type: ignore[arg-type]


def test_events_fit_their_models() -> None:
    tables = Tables()
    decisions = tables.decide(
        memory_event("memory.write", type="Json", value={"a": 1}),
        memory_event("memory.write", type="Json", value={"a": 2}, expected_version=0),
        memory_event("memory.read", type="Json"),
        memory_event("memory.update", type="Json", operation="merge_patch", value={"b": 1}),
        memory_event("memory.read", type="Integer"),
        memory_event("memory.forget"),
        memory_event("memory.read", type="Json"),
        memory_event("memory.forget", expected_version=4),
    )

    for decision in decisions:
        changed = None if decision.item is None else changed_event(decision.item)
        for event in (outcome_event(decision), conflict_event(decision), changed):
            if event is not None:
                parse(decode(encode(event)))


def test_the_tenant_travels_with_the_item() -> None:
    tables = Tables()
    event = memory_event("memory.write", type="Integer", value=1)
    (decision,) = tables.decide(type(event)(**{**{f: getattr(event, f) for f in event.__slots__}, "tenant": "a/b"}))

    assert decision.item is not None
    assert changed_event(decision.item).tenant == "a/b"


def test_purging_takes_only_items_that_still_have_the_overdue_version() -> None:
    tables = Tables()
    tables.say("memory.write", key="gone", type="Integer", value=1, ttl=1, ttl_unit="seconds")
    tables.say("memory.write", key="renewed", type="Integer", value=1, ttl=1, ttl_unit="seconds")
    tables.say("memory.write", key="renewed", type="Integer", value=2)
    tables.say("memory.write", key="locked", type="Integer", value=1, ttl=1, ttl_unit="seconds")
    tables.later(seconds=1)
    base = ADDRESS.removesuffix("stage")
    overdue = [(f"{base}{key}", 1) for key in ("gone", "renewed", "locked")]
    locked = {address: item for address, item in tables.items.items() if not address.endswith("locked")}

    step = purge(overdue, locked, tables.now)

    assert [item.address for item in step.items] == [f"{base}gone"]
    assert step.versions == [(f"{base}gone", 1), (f"{base}renewed", 1)]
    event = changed_event(step.items[0])
    assert (event.data["change"], event.data["version"], event.data["previous_version"]) == ("expired", 0, 1)
    assert changed_event(purge(overdue, locked, tables.now).items[0]).id == event.id
