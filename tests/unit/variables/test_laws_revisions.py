"""What people see of a revision; forks, contracts and children: what runs give to each other."""

from decimal import Decimal
from typing import cast
from uuid import UUID

import pytest

from schemas.exact_json import JsonObject, JsonValue, dumps, loads
from schemas.limits import DEFAULT_LIMITS, Limits
from tests.support.runs import Run
from workers.logic.variables import entries
from workers.logic.variables.state import ExecutionKey
from workers.logic.variables.step import ForkSource
from workers.logic.variables.updates import public_writes, revised_event
from workers.variables.rows import apply_changes


def started(limits: Limits = DEFAULT_LIMITS, **data: object) -> Run:
    run = Run(limits=limits)
    run.start(**data)
    return run


def nested(levels: int) -> JsonValue:
    value: JsonValue = 1
    for _ in range(levels):
        value = {"a": value}
    return value


# -- what people see


def revised(run: Run) -> JsonObject:
    revision = run.revisions[-1]
    body = loads(revision.body)
    assert isinstance(body, dict)
    event = revised_event(run.state.key, revision.revision, UUID(int=1), body, revision.changes)
    return cast("JsonObject", loads(dumps(event.data)))


def test_a_revision_shows_what_was_read_and_written_and_nothing_of_the_machine() -> None:
    run = started()
    run.say("variables.set", variables={"a.b": 1, "a.c": 2})
    run.output("x", {"n": 1}, output_mapping={"a": "{{x.n}}", "y": "{{nobody || a.b}}"})

    said = revised(run)

    assert said["writes"] == [{"path": "a", "value": 1}, {"path": "y", "value": 1}]
    assert said["reads"] == [
        {"path": "x.n", "found": True, "fallback": False},
        {"path": "a.b", "found": True, "fallback": True},
    ]
    assert said["cause"]["activity_id"] == "x"


def test_a_revision_shows_frames_the_scratchpad_and_what_was_removed() -> None:
    run = started()
    run.say("foreach.open", node_id="l", collection=[7], item_variable="item")
    assert revised(run)["writes"] == [{"path": "item", "frame": "l[0]", "value": 7}]
    run.say("scratchpad.write", node_id="w", namespace="n", key="k", value=1)
    assert revised(run)["writes"][0] == {"path": "memory.n.k", "value": 1}
    run.output("a", {"x": 1})
    run.say("activity.failed", activity_id="a", error="e")
    assert public_writes(run.revisions[-1].changes) == revised(run)["writes"] == [{"path": "a", "removed": True}]


def test_a_variable_that_goes_away_is_told_whole_also_where_only_parts_of_it_were_written() -> None:
    run = started()
    run.output("x", {"n": 1}, output_mapping={"a.n": "{{x.n}}", "a.m.k": 2})
    run.say("activity.failed", activity_id="a", error="e")
    assert revised(run)["writes"] == [{"path": "a", "removed": True}]

    run.say("foreach.open", node_id="l", collection=[7], item_variable="item")
    run.say("variables.set", variables={"a.n": 1, "a.m": 1}, iteration=[{"node_id": "l", "index": 0}])
    run.say("foreach.open", node_id="l", collection=[], item_variable="item")
    assert revised(run)["writes"] == [
        {"path": "a", "frame": "l[0]", "removed": True},
        {"path": "item", "frame": "l[0]", "removed": True},
    ]
    assert run.state.store_bytes == size_of(run)


def test_a_revision_names_the_reader_where_it_is_another_node_than_the_cause() -> None:
    run = started()
    run.say("activity.scheduled", activity_id="a", inputs={})
    run.say("activity.scheduled", activity_id="b", inputs={"x": "{{a.n}}"})
    run.output("a", {"n": 1})

    assert revised(run)["reads"] == [{"path": "a.n", "found": True, "fallback": False, "node_id": "b"}]


def test_a_revision_that_writes_a_whole_store_counts_what_does_not_fit_into_an_event() -> None:
    source = started()
    for number in range(5):
        source.output(f"a{number}", {"t": "x" * 400_000})
    fork = Run("fork", fork=ForkSource(dict(source.entries), found=True))
    fork.start(forked_from={"execution_id": "run-1", "revision": 1})

    said = revised(fork)

    assert [write["path"] for write in said["writes"]] == ["a0", "a1"]
    assert said["more_writes"] == len(["a2", "a3", "a4", "input", "system"])
    assert len(dumps(said)) < 2 * 1024 * 1024


def test_a_trace_goes_with_everything_that_an_event_causes() -> None:
    run = started()
    event = run.event("activity.scheduled", {"activity_id": "a", "inputs": {}})
    traced = type(event)(
        id=event.id, source=event.source, type=event.type, subject=event.subject, traceparent="00-t", data=event.data
    )
    revision = run.apply(traced)

    assert revision is not None
    assert revision.outgoing[0].event.traceparent == "00-t"
    assert b'"traceparent":"00-t"' in revision.body


# -- forks


def fork_of(source: Run, *, before: list[tuple[str, JsonObject]] | None = None, **data: object) -> Run:
    fork = Run("fork", fork=ForkSource(dict(source.entries), found=True))
    for event_type, body in before or []:
        fork.say(event_type, **body)
    fork.start(forked_from={"execution_id": "run-1", "revision": source.state.revision}, **data)
    return fork


def test_a_fork_keeps_the_sources_input_unless_it_brings_its_own() -> None:
    source = started(input={"n": 1}, system={"user_id": "u"}, event={"body": "b"})

    kept, own = fork_of(source), fork_of(source, input={"n": 2}, system={"user_id": "v"}, event={"body": "c"})

    paths = ("input.n", "system.user_id", "system.execution_id", "event.body")
    assert [kept.value(path) for path in paths] == [1, "u", "fork", "b"]
    assert [own.value(path) for path in paths] == [2, "v", "fork", "c"]


def test_what_came_for_a_fork_before_its_start_stays_on_top_of_the_sources_store() -> None:
    source = started()
    source.say("variables.set", variables={"a.x": 1, "a.y": 1, "b": 1})

    fork = fork_of(source, before=[("activity.completed", {"activity_id": "a", "output": {"x": 2}})])

    assert fork.variables() == {"a": {"x": 2}, "b": 1}
    assert fork.state.store_bytes == size_of(fork)


def size_of(run: Run) -> int:
    return sum(len(data) for entry, data in run.entries.items() if entry.startswith(entries.PUBLIC_PREFIXES))


def replayed(*runs: Run) -> dict[str, bytes]:
    """Return what the changes of all revisions give in their order, as PostgreSQL's rows are replayed."""
    found: dict[str, bytes] = {}
    for revision in (revision for run in runs for revision in run.revisions):
        apply_changes(found, revision.changes.items())
    return found


def busy() -> Run:
    """Return a run that holds entries of every kind that a fork does not take over."""
    source = started(input={"n": 1})
    source.output("a", {"x": 1})
    source.say("variables.set", variables={"b.c": 1, "gone": 1})
    source.say("activity.scheduled", activity_id="open", inputs={})
    source.say("activity.scheduled", activity_id="waits", inputs={"x": "{{open.x}}", "y": "{{a.x}}"})
    source.say("execution.completed", output="{{a.x}}")
    return source


def test_a_fork_goes_on_counting_after_the_revisions_that_it_begins_with() -> None:
    source = busy()

    fork = fork_of(source)
    fork.output("next", {})

    assert [revision.revision for revision in fork.revisions] == [7, 8]
    assert fork_of(fork, before=[("variables.set", {"variables": {"x": 1}})]).state.revision == 10


def test_a_fork_is_what_its_revisions_give_after_the_inherited_ones() -> None:
    source = busy()
    source.say("execution.failed", error="e")
    fork = fork_of(source)
    fork.output("a", {"x": 2})

    assert replayed(source, fork) == fork.entries

    again = fork_of(fork)
    assert replayed(source, fork, again) == again.entries
    assert again.state.status == "running"


def test_a_fork_with_an_early_output_is_what_all_its_revisions_give() -> None:
    source = busy()
    early: list[tuple[str, JsonObject]] = [
        ("activity.completed", {"activity_id": "a", "output": {"x": 2}}),
        ("variables.set", {"variables": {"b.d": 2}}),
        ("activity.scheduled", {"activity_id": "s", "inputs": {"n": "{{input.n}}"}}),
    ]

    fork = fork_of(source, before=early)

    held_before = Run("fork", revisions=fork.revisions[:3])
    start = Run("fork", revisions=fork.revisions[3:])
    assert replayed(held_before, source, start) == fork.entries
    assert fork.variables() == {"a": {"x": 2}, "b": {"d": 2}, "gone": 1}
    assert fork.state.store_bytes == size_of(fork)


def remembering(**data: object) -> Run:
    source = started(**data)
    memory = {"scope": "shared", "subject": {"kind": "p", "id": "1"}, "key": "k", "type": "Json"}
    (command,) = source.say("memory.read", node_id="r", **memory)
    source.outcome(command, "memory.found", value=1, type="Json", version=4)
    return source


def test_a_fork_has_seen_what_its_source_had_seen_so_that_no_lost_update_goes_unseen() -> None:
    fork = fork_of(remembering())

    memory = {"scope": "shared", "subject": {"kind": "p", "id": "1"}, "key": "k", "type": "Json"}
    (command,) = fork.say("memory.write", node_id="w", value=2, **memory)

    assert command.data["read_version"] == 4


def test_a_fork_of_a_simulation_has_seen_nothing_of_real_memory() -> None:
    source = Run(memory=None)
    source.start(simulation={"memory": [{"subject": "workflow-global", "key": "k", "type": "Json", "value": 1}]})
    source.entries["d/address"] = b"4"

    assert "d/address" not in fork_of(source).entries


def test_a_fork_of_nothing_is_refused() -> None:
    run = Run(fork=ForkSource({}, found=False))
    assert run.refuse(
        "execution.started", workflow={"name": "f"}, forked_from={"execution_id": "x", "revision": 9}
    ) == ("fork_unknown")


# -- contracts


@pytest.mark.parametrize(
    ("type_", "value", "kept"),
    [
        ("number", Decimal("0.5"), True),
        ("number", "0.5", False),
        ("number", True, False),
        ("integer", Decimal(12345678901234567890), True),
        ("integer", Decimal("1.5"), False),
        ("boolean", False, True),
        ("string", 1, False),
        ("object", {}, True),
        ("array", {}, False),
        ("Date", "2026-02-30", False),
        ("Decimal[]", [1, Decimal("2.5")], True),
        ("Integer[]", [1, "x"], False),
        ("Registered", "anything", True),
    ],
)
def test_a_contract_knows_the_seeds_types_and_those_of_memory(type_: str, value: JsonValue, *, kept: bool) -> None:
    run = Run()
    said = run.start(input={"x": value}, contract={"inputs": [{"name": "x", "type": type_}]})

    assert (run.state.status == "running") is kept
    assert [event.data["error"]["code"] for event in said] == ([] if kept else ["contract_violated"])


def test_an_optional_input_may_be_absent() -> None:
    assert started(contract={"inputs": [{"name": "x", "type": "string"}]}).state.status == "running"


def test_the_promised_outputs_are_those_that_the_parent_gets() -> None:
    contract = {"outputs": [{"name": "ok", "type": "boolean", "required": True}]}
    for mapping, status in (({"ok": "{{check.ok}}"}, "completed"), ({"other": "{{check.ok}}"}, "failed")):
        run = started(contract=contract, output_mapping=mapping, parent={"execution_id": "p", "node_id": "n"})
        run.output("check", {"ok": True})
        finalized, told = run.say("execution.completed")
        assert (finalized.data["status"], told.data["status"]) == (status, status)


def test_without_output_and_mapping_the_variables_are_what_was_promised() -> None:
    run = started(contract={"outputs": [{"name": "ok", "type": "boolean", "required": True}]})
    run.say("variables.set", variables={"ok": True})

    (finalized,) = run.say("execution.completed")

    assert finalized.data["status"] == "completed"


def test_outputs_that_cannot_be_resolved_fail_the_child_and_its_parents_node() -> None:
    run = started(output_mapping={"x": "{{"}, parent={"execution_id": "p", "node_id": "n"})

    finalized, told = run.say("execution.completed")

    assert (finalized.data["status"], told.data["status"], told.data["outputs"]) == ("failed", "failed", {})
    assert told.data["error"]["code"] == "template_invalid"


def test_a_child_in_a_loop_answers_the_iteration_that_asked() -> None:
    place = [{"node_id": "loop", "index": 0}]
    child, parent = Run("child"), Run("parent")
    child.start(parent={"execution_id": "parent", "node_id": "sub", "iteration": place})
    assert child.state.parent_execution_id == "parent"
    _, told = child.say("execution.completed", output={"v": 1})
    parent.start()
    parent.say("foreach.open", node_id="loop", collection=[1], item_variable="i")
    parent.apply(told)

    (closed,) = parent.say("foreach.close", node_id="loop")

    assert closed.data["results"] == [{"v": 1}]


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_child_that_did_not_complete_fails_its_node_and_what_comes_after_it_is_skipped(status: str) -> None:
    run = started()
    run.say("activity.scheduled", activity_id="sub", inputs={}, child_execution_id="c")
    run.say("activity.scheduled", activity_id="next", inputs={}, after="sub")

    (skipped,) = run.say("child.completed", node_id="sub", child_execution_id="c", status=status, outputs={})

    assert (skipped.type, skipped.data["node_id"]) == ("node.skipped", "next")


def test_more_reads_than_fit_into_an_event_are_counted() -> None:
    body: JsonObject = {
        "cause": {"id": "1", "source": "/e", "type": "t"},
        "reads": [{"path": "p" * 1000, "found": True, "fallback": False}] * 1500,
        "late": False,
        "at": "t",
    }

    said = revised_event(ExecutionKey("default", "run"), 1, UUID(int=1), body, {}).data

    assert len(said["reads"]) + said["more_reads"] == 1500
    assert len(dumps(said)) < 2 * 1024 * 1024


def test_what_was_mapped_is_the_last_output_whole() -> None:
    run = started()
    run.output("a", {"x": 1, "y": 2}, output_mapping={"z": "{{a.x}}"})

    assert run.ready({"last": "{{last_output.y}}", "parsed": "{{last_output_parsed.y}}"}) == {"last": 2, "parsed": 2}
