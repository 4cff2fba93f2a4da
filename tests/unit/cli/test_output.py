"""What commands write: exact numbers, short values, differences and races in words."""

import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given

from schemas.envelope import Event
from schemas.exact_json import JsonValue, canonical, loads
from schemas.memory import ConflictSide, KnownWriter, MemoryChanged, MemoryConflictDetected
from tests.support.json_values import json_values
from workers.cli.conflict_view import conflict_line, conflict_rows
from workers.cli.differences import differences
from workers.cli.item_views import change_line, full_name, name_of
from workers.cli.local import taken_ports
from workers.cli.once import Once
from workers.cli.output import counted, pretty, say_that_it_watches, short, show_table

WHEN = datetime(2026, 12, 1, 2, 58, 6, 7, tzinfo=UTC)


@given(json_values)
def test_indented_json_holds_the_same_value(value: JsonValue) -> None:
    assert canonical(loads(pretty(value).encode())) == canonical(value)


def test_numbers_keep_their_spelling() -> None:
    assert pretty(loads(b'{"a":[100.00,1e5,23843037174560269]}')) == (
        '{\n  "a": [\n    100.00,\n    1e5,\n    23843037174560269\n  ]\n}'
    )


def test_a_long_value_is_cut_visibly() -> None:
    assert short("x" * 100, 10) == '"xxxxxxxx…'


def test_one_thing_is_not_many() -> None:
    assert [counted(number, "event") for number in (0, 1, 2)] == ["0 events", "1 event", "2 events"]


def test_stores_differ_by_path() -> None:
    before: dict[str, JsonValue] = {"a": {"x": 1, "y": 2}, "gone": True, "same": [1]}
    after: dict[str, JsonValue] = {"a": {"x": 1, "y": 3}, "same": [1], "new": "n"}

    assert differences(before, after) == [("a.y", 2, 3), ("gone", True, None), ("new", None, "n")]


def test_a_number_that_is_spelled_otherwise_differs() -> None:
    assert differences({"a": loads(b"100.0")}, {"a": loads(b"100.00")}) != []


def test_a_store_does_not_differ_from_itself() -> None:
    store: dict[str, JsonValue] = {"a": {"b": [loads(b"1.50"), {"c": None}]}}

    assert differences(store, store) == []


def race(**changes: object) -> MemoryConflictDetected:
    sides = {
        "base": ConflictSide(value=1, version=1, writer=KnownWriter(execution_id="run-39")),
        "current": ConflictSide(value=2, version=2, writer=KnownWriter(execution_id="run-40")),
        "attempted": ConflictSide(value=3, writer=KnownWriter(user_id="mia")),
    }
    facts: dict[str, object] = {
        "kind": "conditional_write",
        "address": "default/shared/-/-/-/k",
        "command_id": "1",
        "command_source": "/s",
        "expected_version": 1,
        "current_version": 2,
        "resolution": "rejected",
    }
    return MemoryConflictDetected.model_validate({**facts, **sides, **changes})


def test_a_race_in_one_line_names_who_met_whom() -> None:
    assert conflict_line(race(), WHEN) == (
        "2026-12-01 02:58:06  default/shared/-/-/-/k  conditional_write: mia expected version 1 but met version 2 of run-40; "
        "nothing was written (base 1, current 2, attempted 3)"
    )


def test_a_race_in_one_line_shortens_long_values() -> None:
    line = conflict_line(race(attempted=ConflictSide(value="x" * 100, writer=KnownWriter(user_id="mia"))), WHEN)

    assert f'attempted "{"x" * 38}…)' in line


def test_writers_without_a_run_are_told_apart_by_their_commands() -> None:
    nameless = race(
        current=ConflictSide(value=2, version=2, writer=KnownWriter(command_id="c-1", command_source="/s")),
        attempted=ConflictSide(value=3, writer=KnownWriter(user_id="mia", command_id="c-2", command_source="/s")),
    )

    assert "mia (command c-2 from /s) expected version 1 but met version 2 of command c-1 from /s; " in conflict_line(
        nameless, WHEN
    )
    assert [writer for *_, writer in conflict_rows(nameless)] == [
        "run-39",
        "command c-1 from /s",
        "mia (command c-2 from /s)",
    ]


def test_whoever_forgot_the_item_is_the_one_that_was_met() -> None:
    forgotten = race(current_version=0, current=ConflictSide(version=0, writer=KnownWriter(execution_id="run-40")))
    expired = race(current_version=0, current=ConflictSide(version=0))

    assert "mia expected version 1 but found it forgotten by run-40; " in conflict_line(forgotten, WHEN)
    assert "mia expected version 1 but found nothing stored; " in conflict_line(expired, WHEN)
    assert conflict_rows(expired)[1] == ("current (won)", "0", "nothing", "-")


def test_who_lost_an_update_had_seen_another_version() -> None:
    line = conflict_line(race(kind="lost_update", resolution="overwritten"), WHEN)

    assert "lost_update: mia had seen version 1 but met version 2 of run-40; it was overwritten unseen" in line


@pytest.mark.parametrize(
    ("command_id", "shown"),
    [
        ("373f21ab0c4d4e6f8a9b0c1d2e3f4a5b", "373f21ab…"),
        ("373f21ab-0c4d-4e6f-8a9b-0c1d2e3f4a5b", "373f21ab…"),
        ("order-2026-12-01-reservation-0002", "order-2026-12-01-reservation-0002"),
    ],
)
def test_a_command_id_is_shown_by_its_beginning_only_where_it_was_drawn(command_id: str, shown: str) -> None:
    assert name_of(KnownWriter(command_id=command_id, command_source="/my/app")) == f"command {shown} from /my/app"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_is_told_that_something_is_watched(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)

    say_that_it_watches("all items")

    shown = capsys.readouterr()
    assert shown.err == ("watching all items; Ctrl-C ends it\n" if terminal else "")
    assert shown.out == ""


def test_a_change_says_what_was_there_before_and_who_made_it() -> None:
    facts = {"address": "default/shared/-/-/-/k", "sequence": 3, "writer": KnownWriter(execution_id="run-1")}
    written = MemoryChanged(change="written", version=2, previous_version=1, value=5, **facts)
    first = MemoryChanged(change="written", version=1, previous_version=0, value=5, **facts)
    expired = MemoryChanged(change="expired", version=0, previous_version=2, **{**facts, "writer": None})

    assert change_line(written) == "default/shared/-/-/-/k  written version 2 after 1 by run-1 = 5"
    assert change_line(first) == "default/shared/-/-/-/k  written version 1 by run-1 = 5"
    assert change_line(expired) == "default/shared/-/-/-/k  expired, it was version 2"


def test_a_run_is_named_in_full_with_its_node_and_person() -> None:
    assert full_name(b'{"execution_id":"run-1","workflow":"w","node_id":"n","user_id":"mia"}') == "run-1 n mia"
    assert full_name(b'{"user_id":"mia","command_id":"c-1","command_source":"/s"}') == "mia (command c-1 from /s)"
    assert full_name(None) == "-"


def test_an_event_that_comes_again_is_shown_once() -> None:
    once = Once(remembered=2)
    events = [Event(id=number, source="/s", type="t", data={}) for number in ("1", "2", "1", "3", "1")]

    assert [once.is_new(event) for event in events] == [True, True, False, True, True]


def test_an_id_is_never_folded(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.cli.output._PIPED_WIDTH", 60)

    show_table(None, ("id", "message"), [("0" * 36, "a message that is long " * 5)], whole={"id"})

    assert "0" * 36 in capsys.readouterr().out


def test_a_table_that_would_fold_into_slivers_becomes_blocks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.cli.output._PIPED_WIDTH", 50)
    message = "nothing of this message is broken within a word, however narrow"

    show_table("two", ("id", "code", "message"), [("0" * 36, "malformed", message), ("1" * 36, "", "x")], whole={"id"})

    assert capsys.readouterr().out.splitlines() == [
        "two",
        f"id      │ {'0' * 36}",
        "code    │ malformed",
        f"message │ {message}",
        "",
        f"id      │ {'1' * 36}",
        "message │ x",
    ]


def test_a_table_folds_between_words_and_cuts_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The least width at which each column has its longest word.
    monkeypatch.setattr("workers.cli.output._PIPED_WIDTH", 10 + 10 + 5)

    show_table(None, ("written", "not done"), [("2026-12-01 02:58:06", "it failed completely")])

    assert [line.split() for line in capsys.readouterr().out.splitlines()[2:]] == [
        ["2026-12-01", "│", "it", "failed"],
        ["02:58:06", "│", "completely"],
    ]


def test_an_unseen_overwrite_says_so() -> None:
    line = conflict_line(race(kind="lost_update", expected_version=None, resolution="overwritten", current=None), WHEN)

    assert line.endswith("mia met version 2 of an unknown writer; it was overwritten unseen (base 1, attempted 3)")


def test_a_value_that_was_left_out_shows_its_size() -> None:
    large = race(base=None, current=ConflictSide(value_bytes=40113, version=2))

    assert conflict_rows(large) == [
        ("current (won)", "2", "(40113 bytes)", "an unknown writer"),
        ("attempted (lost)", "-", "3", "mia"),
    ]


def test_a_usual_port_that_was_taken_is_told() -> None:
    assert taken_ports("127.0.0.1:9092", "postgresql://u:p@127.0.0.1:5432/d") == []
    assert taken_ports("127.0.0.1:40001", "postgresql://u:p@127.0.0.1:40002/d") == [
        "port 9092 was taken by another program: Kafka uses 40001 instead",
        "port 5432 was taken by another program: PostgreSQL uses 40002 instead",
    ]
