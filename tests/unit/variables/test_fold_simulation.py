"""Simulated runs never change memory (seed 003)."""

from datetime import timedelta

import pytest

from schemas.envelope import Event
from schemas.exact_json import JsonObject, JsonValue
from tests.support.runs import NOW, Run
from workers.logic.memory.conversations import Listing
from workers.logic.memory.items import Item
from workers.logic.variables.simulation import NeedsMemory
from workers.logic.variables.step import RealMemory

GLOBAL = "default/workflow/flow/-/-/counter"
PATIENT = "default/workflow/flow/patient/p1/last"


def real(address: str, value: bytes, version: int = 3) -> Item:
    return Item(
        address,
        version,
        sequence=version,
        type="Integer",
        value=value,
        change="written",
        changed_at=NOW,
        expires_at=NOW + timedelta(days=1),
    )


def simulated(real_items: dict[str, Item] | None = None, **options: JsonValue) -> Run:
    run = Run(memory=RealMemory(items=real_items or {}))
    run.start(simulation=options or True, subjects=[{"kind": "patient", "id": "p1"}])
    return run


def ask(run: Run, event_type: str, subject: str = "workflow-global", key: str = "counter", **data: JsonValue) -> Event:
    events = run.say(event_type, node_id="n", scope="workflow", subject=subject, key=key, type="Integer", **data)
    assert [event.type for event in events] == ["node.answered"], "no command leaves the run"
    return events[0]


def outputs(event: Event) -> JsonObject:
    found = event.data["outputs"]
    assert isinstance(found, dict)
    return found


def test_real_global_items_are_read_and_later_reads_see_the_same() -> None:
    run = simulated({GLOBAL: real(GLOBAL, b"7")})
    assert outputs(ask(run, "memory.read"))["value"] == 7

    run.memory = RealMemory(items={GLOBAL: real(GLOBAL, b"8", version=4)})

    assert outputs(ask(run, "memory.read"))["version"] == 3


def test_an_item_that_was_not_passed_in_is_asked_for_and_leaves_no_trace() -> None:
    run = simulated()
    before = (run.head, dict(run.entries))

    with pytest.raises(NeedsMemory) as asked:
        ask(run, "memory.read")

    assert asked.value.addresses == {GLOBAL}
    assert (run.head, run.entries) == before


def test_writes_are_captured_and_seen_by_the_rest_of_the_run() -> None:
    run = simulated({GLOBAL: real(GLOBAL, b"7")})

    assert outputs(ask(run, "memory.write", value=9, expected_version=3))["version"] == 4
    assert outputs(ask(run, "memory.write", value=1, expected_version=3))["conflict"] is True
    assert outputs(ask(run, "memory.read"))["value"] == 9
    assert outputs(ask(run, "memory.update", operation="increment", by=1))["value"] == 10

    (finalized,) = run.say("execution.completed")
    effects = finalized.data["effects"]
    assert {str(effect["expires_at"])[-1] for effect in effects if "expires_at" in effect} == {"Z"}
    assert [(effect["port"], effect["change"], effect["version"], effect["value"]) for effect in effects] == [
        ("memory", "written", 4, 9),
        ("memory", "written", 5, 10),
    ]


def test_a_forget_is_captured() -> None:
    run = simulated({GLOBAL: real(GLOBAL, b"7")})
    run.say("memory.forget", node_id="f", scope="workflow", subject="workflow-global", key="counter")

    assert outputs(ask(run, "memory.read")) == {"missing": True, "version": 0, "done": True}
    assert outputs(ask(run, "memory.write", value=1, expected_version=0))["version"] == 4


def test_a_subjects_items_are_only_seen_when_the_subject_is_given() -> None:
    hidden = simulated({PATIENT: real(PATIENT, b"5")})
    assert outputs(ask(hidden, "memory.read", subject="patient", key="last"))["missing"] is True

    given = simulated({PATIENT: real(PATIENT, b"5")}, subject={"kind": "patient", "id": "p1"})
    assert outputs(ask(given, "memory.read", subject="patient", key="last"))["value"] == 5


def test_a_seeded_item_wins_over_the_real_one_with_its_version() -> None:
    run = simulated(
        {GLOBAL: real(GLOBAL, b"7")},
        memory=[{"subject": "workflow-global", "key": "counter", "type": "Integer", "value": 40, "version": 12}],
    )

    found = outputs(ask(run, "memory.read"))

    assert (found["value"], found["version"]) == (40, 12)


def test_two_simulations_of_one_input_give_one_result() -> None:
    runs = [simulated({GLOBAL: real(GLOBAL, b"7")}) for _ in range(2)]
    for run in runs:
        ask(run, "memory.update", operation="increment", by=1)
        run.say("execution.completed")

    assert runs[0].entries == runs[1].entries
    assert [revision.body for revision in runs[0].revisions] == [revision.body for revision in runs[1].revisions]


def test_conversations_are_simulated_too() -> None:
    run = Run(memory=RealMemory())
    run.start(simulation=True)
    with pytest.raises(NeedsMemory) as asked:
        run.say("conversation.add", node_id="c", id="c1", role="user", content="hi")
    (address,) = asked.value.addresses
    run.memory = RealMemory(items={address: Item(address)})
    (answer,) = run.say("conversation.add", node_id="c", id="c1", role="user", content="hi")
    assert outputs(answer)["count"] == 1

    with pytest.raises(NeedsMemory) as asked:
        run.say("conversation.get_all", node_id="l")
    (prefix,) = asked.value.prefixes
    run.memory = RealMemory(listings={prefix: Listing()})
    (answer,) = run.say("conversation.get_all", node_id="l")

    assert outputs(answer)["total"] == 1


def test_effects_too_large_for_the_last_word_are_counted() -> None:
    run = simulated({GLOBAL: real(GLOBAL, b"7")})
    for number in range(6):
        run.say(
            "memory.write",
            node_id=f"n{number}",
            scope="workflow",
            subject={"kind": "patient", "id": "p1"},
            key=f"k{number}",
            type="String",
            value="x" * 200_000,
        )

    (finalized,) = run.say("execution.completed")

    assert "effects" not in finalized.data
    assert int(str(finalized.data["effects_bytes"])) > 1_200_000
    assert str(finalized.data["effects_at"]).startswith("tally execution show ")
