"""Revisions as `tally execution history` and `reads` show them."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from schemas.envelope import Event
from schemas.exact_json import JsonObject, JsonValue, dumps
from tests.support.runs import Run
from topics.catalog import Topic
from topics.codec import STRUCTURED_HEADERS, encode
from topics.records import Record
from workers.cli.revision_views import revision_document, show_revisions, touches_of
from workers.cli.store_view import store_document
from workers.logic.variables import entries
from workers.logic.variables.state import ExecutionKey
from workers.logic.variables.step import ForkSource
from workers.variables.history import RevisionDetail, StoreAt

LOOP: list[object] = [{"node_id": "items", "index": 2}]
KEY = ExecutionKey("default", "run-1")


def revision(cause: JsonObject, *answers: tuple[str, JsonObject], **changes: bytes | None) -> RevisionDetail:
    events = [Event(id="a", source="/s", type=name, subject="run-1", data=data) for name, data in answers]
    return RevisionDetail(
        revision=7,
        event_key=UUID(int=7),
        applied_at=datetime(2026, 1, 1, tzinfo=UTC),
        body={"cause": cause, "reads": [{"path": "a", "found": True}], "late": False},
        changes={f"v/{name}": value for name, value in changes.items()},
        outgoing=tuple(Record(Topic.NODE_RESULTS, b"run-1", encode(event), STRUCTURED_HEADERS) for event in events),
    )


def answer(node_id: str, **fields: object) -> JsonObject:
    return {"node_id": node_id, "request_id": "1", "request_source": "/s", **fields}  # type: ignore[dict-item]


def shown(capsys: pytest.CaptureFixture[str], *details: RevisionDetail) -> str:
    show_revisions(details)
    return capsys.readouterr().out


def test_a_node_that_was_not_done_is_shown_with_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    failed = ("node.failed", answer("write", code="result_too_large", message="it is too large"))
    skipped = ("node.skipped", answer("lab", iteration=LOOP, code="port_absent", message="no subject"))
    detail = revision({"type": "memory.write", "node_id": "write"}, failed, skipped)

    text = shown(capsys, detail)

    assert "write failed: result_too_large, items[2] lab skipped: port_absent" in text
    assert revision_document(detail)["answers"] == [
        {"type": "node.failed", "node_id": "write", "code": "result_too_large", "message": "it is too large"},
        {
            "type": "node.skipped",
            "node_id": "lab",
            "iteration": LOOP,
            "code": "port_absent",
            "message": "no subject",
        },
    ]


@pytest.mark.parametrize(
    ("error", "kept", "words"),
    [
        ({"code": "timeout", "message": "no reply", "more": 1}, {"code": "timeout", "message": "no reply"}, None),
        ("no reply", {"message": "no reply"}, "no reply"),
        ({"reason": 7}, {"message": '{"reason":7}'}, None),
        ({"message": "x" * 2000}, {"message": f"{'x' * 999}…"}, None),
    ],
)
def test_an_activity_that_failed_is_shown_with_its_error(
    error: JsonValue, kept: JsonObject, words: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run()
    run.start()
    run.say("activity.failed", activity_id="lab", error=error)
    run.say("activity.failed", activity_id="check", error=error, iteration=LOOP)
    details = [
        replace(revision({"type": "activity.failed"}), changes=made.changes, outgoing=()) for made in run.revisions[1:]
    ]

    text = shown(capsys, *details)

    expected: list[JsonObject] = [{"node_id": "lab", **kept}, {"node_id": "check", "frame": "items[2]", **kept}]
    assert [revision_document(detail)["failures"] for detail in details] == [[each] for each in expected]
    assert store_document(KEY, StoreAt(3, run.entries))["failures"] == expected
    if words is not None:
        assert f"lab failed: {words}" in text
        assert f"items[2] check failed: {words}" in text


def test_an_activity_that_succeeds_in_the_end_has_not_failed() -> None:
    run = Run()
    run.start()
    run.say("activity.failed", activity_id="lab", error={"code": "timeout"})
    run.output("lab", {"n": 1})

    assert "failures" not in store_document(KEY, StoreAt(3, run.entries))


def test_a_child_that_failed_says_why_in_its_parent() -> None:
    run = Run()
    run.start()
    error: JsonObject = {"code": "gone", "message": "no such case"}
    run.say("child.completed", node_id="sub", child_execution_id="c", status="failed", outputs={}, error=error)

    assert store_document(KEY, StoreAt(2, run.entries))["failures"] == [{"node_id": "sub", **error}]


def test_a_node_in_a_loop_is_shown_with_its_index(capsys: pytest.CaptureFixture[str]) -> None:
    cause: JsonObject = {"type": "activity.completed", "activity_id": "check", "iteration": LOOP}  # type: ignore[dict-item]

    assert "items[2] check" in shown(capsys, revision(cause))


def test_an_outcome_is_shown_under_the_node_that_it_answers(capsys: pytest.CaptureFixture[str]) -> None:
    answered = ("node.answered", answer("count", outputs={"done": True}))

    assert " count " in shown(capsys, revision({"type": "memory.updated"}, answered))


def test_only_what_was_written_has_a_value() -> None:
    detail = revision({"type": "variables.set"}, a=b"1.50", gone=None)

    touches = touches_of(detail, "a") + touches_of(detail, "gone")

    assert [(touch["how"], "value" in touch) for touch in touches] == [
        ("read", False),
        ("wrote", True),
        ("removed", False),
    ]


def test_a_store_is_shown_with_how_it_ended_and_what_a_simulation_would_have_changed() -> None:
    entries = {
        "m": dumps({"workflow": {"name": "w"}, "simulation": True}),
        "e": dumps({"status": "failed", "output": None, "error": {"code": "x"}}),
        "s/12": dumps({"key": "second"}),
        "s/3": dumps({"key": "first"}),
    }

    document = store_document(KEY, StoreAt(4, entries))

    assert document["error"] == {"code": "x"}
    assert document["effects"] == [{"key": "first"}, {"key": "second"}]


def test_what_is_outstanding_is_shown_with_what_it_waits_for() -> None:
    run = Run()
    run.say("foreach.open", node_id="early", collection="{{input.l}}", item_variable="i")
    assert store_document(KEY, StoreAt(1, run.entries))["outstanding"] == [
        {"type": "foreach.open", "node_id": "early", "waits_for": ["execution.started"]}
    ]
    run = Run()
    run.start(subjects=[{"kind": "p", "id": "1"}])
    run.say("activity.scheduled", activity_id="a", inputs={})
    run.say("variables.set", variables={"x": "{{a.n}}"})
    run.say("memory.read", node_id="r", subject="p", key="k", type="Json", scope="shared")
    run.say("memory.read", node_id="again", subject="p", key="k", type="Json", scope="shared", iteration=LOOP)
    run.say("scratchpad.write", node_id="s", key="k", value="{{x}}")

    assert store_document(KEY, StoreAt(6, run.entries))["outstanding"] == [
        {"type": "activity.scheduled", "node_id": "a", "waits_for": ["its activity"]},
        {"type": "variables.set", "waits_for": ["a"]},
        {"type": "memory.read", "node_id": "r", "waits_for": ["its outcome"]},
        {"type": "memory.read", "node_id": "again", "iteration": LOOP, "waits_for": ["its turn"]},
        {"type": "scratchpad.write", "node_id": "s", "waits_for": ["x"]},
    ]


def test_a_fork_shows_what_it_inherited_and_what_its_start_set_itself(capsys: pytest.CaptureFixture[str]) -> None:
    source = Run()
    source.start()
    source.output("a", {"x": 1})
    fork = Run("fork", fork=ForkSource(source.entries, found=True))
    fork.start(forked_from={"execution_id": "run-1", "revision": 2}, input={"n": 1})
    inherited = replace(revision({"type": "activity.completed", "activity_id": "a"}, a=b"1"), event_key=None)
    start = replace(revision({"type": "execution.started"}), changes=fork.revisions[0].changes, revision=8)

    text = shown(capsys, inherited, start)

    assert "7 inherited" in text
    assert text.splitlines()[-1].endswith("input, system")
    assert revision_document(inherited)["inherited"] is True
    assert [touch["path"] for touch in touches_of(start, "a.x")] == ["a"]
    assert touches_of(start, "input")[-1]["value"] == {"n": 1}
    assert store_document(KEY, StoreAt(8, fork.entries))["forked_from"] == {"execution_id": "run-1", "revision": 2}


def test_a_store_of_a_run_that_goes_on_has_neither() -> None:
    assert store_document(KEY, StoreAt(1, {"m": dumps({"workflow": {"name": "w"}})})) == {
        "variables": {},
        "scratchpad": {},
        "outstanding": [],
    }


def test_what_an_iteration_holds_is_told_with_its_iteration(capsys: pytest.CaptureFixture[str]) -> None:
    opened = revision({"type": "foreach.open", "node_id": "items"})
    written = {entries.variable(f"items[{index}]", ("item",)): b'"a"' for index in (0, 1)}

    assert "items[0] item, items[1] item" in shown(capsys, replace(opened, changes=written))
