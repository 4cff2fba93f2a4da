"""What a worker remembers of the items that it wrote."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from tests.support.memory_store import START
from workers.logic.memory.items import Item
from workers.memory.recent import RecentItems

_LATER = START + timedelta(days=1)
_ROOM_FOR_THREE = 3 * 1024 + 300


def item(address: str, version: int = 1, value: bytes | None = b"1") -> Item:
    return Item(address, version, version, value=value, expires_at=None if value is None else _LATER)


def test_the_newest_state_is_found() -> None:
    recent = RecentItems()
    recent.add([item("a"), item("b")])
    recent.add([item("a", 2)])

    assert recent.find(["a", "b", "c"], START) == {"a": item("a", 2), "b": item("b")}


def test_what_was_forgotten_is_known_as_such() -> None:
    recent = RecentItems()
    recent.add([item("a", value=None)])

    assert recent.find(["a"], START) == {"a": item("a", value=None)}


def test_what_has_expired_is_read_again() -> None:
    recent = RecentItems()
    recent.add([item("a")])

    assert recent.find(["a"], _LATER) == {}


def test_nothing_is_left_after_somebody_else_changed_something() -> None:
    recent = RecentItems(_ROOM_FOR_THREE)
    recent.add([item("a"), item("b"), item("c")])
    recent.clear()
    recent.add([item("d"), item("e"), item("f")])

    assert recent.find("abcdef", START).keys() == {"d", "e", "f"}


def test_what_was_written_longest_ago_makes_room() -> None:
    recent = RecentItems(_ROOM_FOR_THREE)
    recent.add([item("a"), item("b"), item("c")])
    recent.add([item("a", 2), item("d")])

    assert recent.find("abcd", START).keys() == {"a", "c", "d"}


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 5000)), min_size=1))
def test_what_is_kept_are_the_last_writes_and_they_fit(writes: list[tuple[str, int]]) -> None:
    recent = RecentItems(10_000)
    newest: dict[str, Item] = {}
    for version, (address, size) in enumerate(writes):
        state = item(address, version, b"x" * size)
        recent.add([state])
        newest.pop(address, None)
        newest[address] = state

    kept = recent.find("abcdef", START)

    assert kept == dict([*newest.items()][-len(kept) :])
    assert kept
    assert sum(1024 + len(state.value or b"") for state in kept.values()) <= 10_000
