"""The checker finds every way in which a conversation can be broken, planted into a history in which all was kept."""

import copy
from collections.abc import Callable
from typing import cast

import pytest
from msgspec.structs import replace

from schemas.envelope import Event
from schemas.exact_json import JsonObject, JsonValue, dumps, loads
from tests.support.checker.commands import check_commands
from tests.support.checker.conversations import check_conversations
from tests.support.history import History, event_of
from tests.support.planting import found, records, rewrite
from topics.catalog import Topic

Messages = list[JsonValue]


def outcomes(history: History, event_type: str) -> list[Event]:
    """Return the outcomes of one type, oldest first."""
    found = records(history, Topic.MEMORY_RESULTS, event_type)
    return [event for record in sorted(found, key=lambda each: each.timestamp_ms) if (event := event_of(record))]


def memories(event: Event) -> Messages:
    return cast("Messages", event.data["memories"])


def change_lists(history: History, change: Callable[[Messages], Messages]) -> None:
    """Change every list of messages that the history shows."""

    def shown(data: JsonObject) -> None:
        if "total" in data:
            for record in cast("list[JsonObject]", data["memories"]):
                record["data"] = change(cast("Messages", record["data"]))
        elif "memories" in data:
            data["memories"] = change(cast("Messages", data["memories"]))
            data["count"] = len(cast("Messages", data["memories"]))

    def changed(data: JsonObject) -> None:
        value = data["value"]
        if data["type"] == "conversation" and isinstance(value, dict):
            value["messages"] = change(cast("Messages", value["messages"]))

    for topic, how in ((Topic.MEMORY_RESULTS, shown), (Topic.MEMORY_CHANGES, changed)):
        for event_id in {event.id for record in history.log(topic) if (event := event_of(record))}:
            rewrite(history, topic, event_id, how)


def test_a_message_that_later_lists_do_not_have_is_found(history):
    victim = next(event for event in outcomes(history, "conversation.added") if event.data["count"] == 3)
    lost = memories(victim)[-1]
    change_lists(
        history, lambda listed: [each for each in listed if each != lost or (listed[-1] == lost and len(listed) == 3)]
    )

    found(history, "message_lost")


def test_a_message_that_is_kept_twice_is_found(history):
    event = next(event for event in outcomes(history, "conversation.added") if event.data["count"] == 3)
    rewrite(
        history,
        Topic.MEMORY_RESULTS,
        event.id,
        lambda data: data.update(memories=[memories(event)[0], *memories(event)], count=4),
    )

    found(history, "message_twice")


def test_a_list_that_does_not_end_with_what_was_added_is_found(history):
    event = next(event for event in outcomes(history, "conversation.added") if event.data["count"] == 3)
    rewrite(history, Topic.MEMORY_RESULTS, event.id, lambda data: data.update(memories=memories(event)[::-1]))

    found(history, "conversation_wrong")


def test_a_list_that_follows_no_other_is_found(history):
    event = next(event for event in outcomes(history, "conversation.added") if event.data["count"] == 4)
    one, two, *rest = memories(event)
    rewrite(history, Topic.MEMORY_RESULTS, event.id, lambda data: data.update(memories=[two, one, *rest]))

    found(history, "conversation_wrong")


def test_a_message_that_nobody_added_is_found(history):
    event = outcomes(history, "conversation.added")[2]
    invented: JsonObject = {"role": "user", "content": "nobody said this"}
    rewrite(
        history,
        Topic.MEMORY_RESULTS,
        event.id,
        lambda data: data.update(memories=[invented, *memories(event)], count=len(memories(event)) + 1),
    )

    found(history, "conversation_wrong")


def test_a_reader_that_sees_another_order_is_found(history):
    event = next(event for event in outcomes(history, "conversation.got") if len(memories(event)) > 1)
    rewrite(history, Topic.MEMORY_RESULTS, event.id, lambda data: data.update(memories=memories(event)[::-1]))

    found(history, "conversation_wrong")


def test_a_reader_that_gets_more_than_it_asked_for_is_found(history):
    event = next(
        event for event in outcomes(history, "conversation.got") if event.data["limit"] == len(memories(event))
    )
    rewrite(
        history,
        Topic.MEMORY_RESULTS,
        event.id,
        lambda data: data.update(memories=[*memories(event), memories(event)[0]], count=len(memories(event)) + 1),
    )

    found(history, "conversation_wrong")


def test_a_reader_that_sees_what_is_long_gone_is_found(history):
    event = next(
        event
        for event in outcomes(history, "conversation.got")[::-1]
        if event.data["sort_order"] == "asc" and int(str(event.data["total_count"])) > 3
    )
    first = memories(event)[:1]
    rewrite(history, Topic.MEMORY_RESULTS, event.id, lambda data: data.update(memories=first, count=1, total_count=1))

    found(history, "not_linearizable")


def test_a_list_of_all_without_one_that_is_there_is_found(history):
    event = next(
        event
        for event in outcomes(history, "conversation.listed")
        if len(memories(event)) == event.data["total"] == 2
        and all(len(cast("Messages", record["data"])) > 2 for record in cast("list[JsonObject]", memories(event)))
        and not _limit_of(history, event)
    )
    rewrite(
        history,
        Topic.MEMORY_RESULTS,
        event.id,
        lambda data: data.update(memories=memories(event)[1:], count=1, total=1),
    )

    found(history, "not_linearizable")


def _limit_of(history: History, outcome: Event) -> JsonValue:
    commands = (event_of(record) for record in history.log(Topic.MEMORY_COMMANDS))
    return next(each.data.get("limit") for each in commands if each and each.id == outcome.data["command_id"])


def test_a_list_of_all_with_a_state_that_never_was_is_found(history):
    event = next(event for event in outcomes(history, "conversation.listed")[::-1] if memories(event))

    def shorten(data: JsonObject) -> None:
        record = cast("JsonObject", memories(event)[0])
        data["memories"] = [{**record, "data": cast("Messages", record["data"])[1:]}, *memories(event)[1:]]

    rewrite(history, Topic.MEMORY_RESULTS, event.id, shorten)

    found(history, "conversation_wrong")


def test_a_list_of_all_in_another_order_is_found(history):
    event = next(event for event in outcomes(history, "conversation.listed") if len(memories(event)) > 1)
    rewrite(history, Topic.MEMORY_RESULTS, event.id, lambda data: data.update(memories=memories(event)[::-1]))

    found(history, "conversation_wrong")


def test_a_deletion_that_says_it_found_nothing_is_found(history):
    event = next(event for event in outcomes(history, "conversation.deleted") if event.data["success"])
    rewrite(history, Topic.MEMORY_RESULTS, event.id, lambda data: data.update(success=False))

    found(history, "not_linearizable")


def test_a_conversation_that_is_stored_otherwise_is_found(history):
    place, row = next((n, row) for n, row in enumerate(history.items) if "talk-" in row.address and row.value)
    stored = cast("JsonObject", loads(row.value))
    stored["messages"] = cast("Messages", stored["messages"])[:-1]
    history.items[place] = row._replace(value=dumps(stored))

    found(history, "item_wrong")


def test_a_change_that_shows_other_messages_is_found(history):
    change = next(
        event
        for record in history.log(Topic.MEMORY_CHANGES)
        if (event := event_of(record)) and event.data["type"] == "conversation"
    )
    value = cast("JsonObject", change.data["value"])
    rewrite(history, Topic.MEMORY_CHANGES, change.id, lambda data: data.update(value={**value, "messages": []}))

    found(history, "published_changed")


def test_versions_that_do_not_count_on_are_found(history):
    change = next(
        event
        for record in history.log(Topic.MEMORY_CHANGES)
        if (event := event_of(record))
        and event.data["type"] == "conversation"
        and int(str(event.data["previous_version"])) > 0
    )
    rewrite(history, Topic.MEMORY_CHANGES, change.id, lambda data: data.update(version=int(str(data["version"])) + 1))

    found(history, "version_gap")


def untold(history: History) -> History:
    """Forget all that tells versions of conversations."""
    history.logs[Topic.MEMORY_CHANGES] = [
        each for each in history.log(Topic.MEMORY_CHANGES) if b"talk-" not in each.key
    ]
    history.versions = [version for version in history.versions if "talk-" not in version.address]
    return history


def test_lives_of_which_nobody_told_the_versions_are_placed_by_trial(history):
    _, answered = check_commands(untold(history))
    verdict = check_conversations(history, answered)

    assert verdict.kinds <= {"history_wrong"}, str(verdict)  # the versions that are not stored any more
    assert verdict.counts["lives placed by trial"] >= 3


@pytest.mark.parametrize("shift_s", [-1000, 1000])
def test_lives_that_fit_nowhere_are_found(history, shift_s):
    untold(history)
    last = outcomes(history, "conversation.added")[-1 if shift_s < 0 else 0]
    for topic in (Topic.MEMORY_COMMANDS, Topic.MEMORY_RESULTS):
        history.logs[topic] = [
            replace(record, timestamp_ms=record.timestamp_ms + shift_s * 1000)
            if (event := event_of(record)) and last.data["command_id"] in (event.id, event.data.get("command_id"))
            else record
            for record in history.log(topic)
        ]
    _, answered = check_commands(copy.deepcopy(history))

    assert "not_linearizable" in check_conversations(history, answered).kinds
