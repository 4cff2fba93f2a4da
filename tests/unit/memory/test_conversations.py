"""Conversation records (seed 004)."""

import pytest

from tests.support.memory_store import Tables, memory_event


def _talk(tables: Tables, record: str, *contents: str, role: str = "user") -> None:
    for content in contents:
        tables.say("conversation.add", id=record, role=role, content=content)
        tables.later(seconds=1)


def test_add_appends_to_the_record_and_returns_it() -> None:
    tables = Tables()
    tables.say("conversation.add", id="s-1", role="user", content="hello")

    outcome = tables.say("conversation.add", id="s-1", role="assistant", content="hi")

    memories = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    assert outcome == ("conversation.added", {"success": True, "memories": memories, "count": 2})


def test_the_limit_applies_after_sorting() -> None:
    tables = Tables()
    _talk(tables, "s-1", "one", "two", "three")

    newest = tables.say("conversation.get", id="s-1", limit=2, sort_order="desc")[1]
    oldest = tables.say("conversation.get", id="s-1", limit=2)[1]

    assert [message["content"] for message in newest["memories"]] == ["three", "two"]
    assert [message["content"] for message in oldest["memories"]] == ["one", "two"]
    assert (newest["count"], newest["total_count"], newest["limit"], newest["sort_order"]) == (2, 3, 2, "desc")


def test_a_record_that_does_not_exist_is_empty() -> None:
    outcome = Tables().say("conversation.get", id="nobody")

    assert outcome[1]["memories"] == []
    assert outcome[1]["message"] == "there is no record 'nobody'"


def test_records_of_one_workflow_are_listed_and_no_others() -> None:
    tables = Tables()
    _talk(tables, "s-1", "one")
    _talk(tables, "s-2", "two", role="assistant")
    tables.say("conversation.add", workflow="support-2", id="s-3", role="user", content="elsewhere")
    tables.say("conversation.add", workflow="suppor", id="s-4", role="user", content="elsewhere")

    listed = tables.say("conversation.get_all")[1]

    assert [(record["key"], record["type"]) for record in listed["memories"]] == [("s-1", "agent"), ("s-2", "agent")]
    assert listed["memories"][0]["data"] == [{"role": "user", "content": "one"}]
    assert (listed["count"], listed["total"]) == (2, 2)


def test_a_listing_is_sorted_by_the_last_message_filtered_and_limited() -> None:
    tables = Tables()
    _talk(tables, "s-1", "a")
    _talk(tables, "s-2", "b", role="system")
    _talk(tables, "s-1", "c", role="system")

    newest = tables.say("conversation.get_all", sort_order="desc", limit=1)[1]
    filtered = tables.say("conversation.get_all", filter_type="user")[1]

    assert [record["key"] for record in newest["memories"]] == ["s-1"]
    assert [(record["key"], record["data"]) for record in filtered["memories"]] == [
        ("s-1", [{"role": "user", "content": "a"}])
    ]
    assert (filtered["count"], filtered["total"]) == (1, 2)


def test_a_listing_sees_what_its_own_batch_added_and_removed() -> None:
    tables = Tables()
    _talk(tables, "s-1", "a")

    *_, listing = tables.decide(
        memory_event("conversation.delete", id="s-1"),
        memory_event("conversation.add", id="s-2", role="user", content="b"),
        memory_event("conversation.get_all"),
    )

    assert [record["key"] for record in listing.outcome["memories"]] == ["s-2"]
    assert listing.outcome["total"] == 1


def test_delete_removes_the_record_once() -> None:
    tables = Tables()
    _talk(tables, "s-1", "a")

    first = tables.say("conversation.delete", id="s-1")[1]
    second = tables.say("conversation.delete", id="s-1")[1]

    assert (first["success"], second["success"]) == (True, False)
    assert tables.say("conversation.get", id="s-1")[1]["total_count"] == 0


def test_an_outcome_holds_at_most_256_kib_newest_kept() -> None:
    tables = Tables()
    big = "x" * 100_000
    _talk(tables, "s-1", f"1{big}", f"2{big}", f"3{big}")

    added = tables.say("conversation.add", id="s-1", role="user", content="4")[1]
    got = tables.say("conversation.get", id="s-1", sort_order="desc")[1]
    listed = tables.say("conversation.get_all")[1]

    assert [message["content"][0] for message in added["memories"]] == ["2", "3", "4"]
    assert (added["count"], added["truncated"]) == (4, True)
    assert [message["content"][0] for message in got["memories"]] == ["4", "3", "2"]
    assert (got["count"], got["total_count"], got["truncated"]) == (3, 4, True)
    assert [message["content"][0] for message in listed["memories"][0]["data"]] == ["2", "3", "4"]
    assert listed["truncated"] is True


def test_a_record_is_kept_until_it_is_deleted() -> None:
    tables = Tables()
    _talk(tables, "s-1", "a")
    tables.later(days=3650)

    assert tables.say("conversation.get", id="s-1")[1]["total_count"] == 1


def test_history_keeps_no_copies_of_a_record() -> None:
    tables = Tables()
    _talk(tables, "s-1", "a", "b")

    assert [version.value for version in tables.versions.values()] == [None, None]


@pytest.mark.parametrize("event_type", ["memory.write", "memory.update"])
def test_a_record_cannot_be_overwritten_by_other_means(event_type: str) -> None:
    tables = Tables()
    _talk(tables, "s-1", "a")
    fields = {"value": 1} if event_type == "memory.write" else {"operation": "increment"}

    outcome = tables.say(
        event_type,
        workflow="support",
        subject={"kind": "conversation", "id": "s-1"},
        key="messages",
        type="Json",
        **fields,
    )

    assert (outcome[0], outcome[1]["code"]) == ("memory.rejected", "type_mismatch")


def test_a_message_without_a_role_is_refused_where_the_record_is_named() -> None:
    outcome = Tables().say("conversation.add", id="s-1", content="hello")

    assert (outcome[0], outcome[1]["code"]) == ("memory.rejected", "data_invalid")
