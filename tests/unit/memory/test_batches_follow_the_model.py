"""The plan of batches against a model that applies one command after the other to a plain dict.

Commands come again, in the same batch or in later ones; ids come again with other content; batches are cut anywhere;
time passes in between.
"""

from dataclasses import dataclass, field
from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from schemas.envelope import Event
from schemas.exact_json import JsonValue
from tests.support.memory_store import START, Tables, as_read, memory_event
from workers.logic.memory.commands import understand
from workers.logic.memory.decide import Decision
from workers.logic.memory.items import live_version
from workers.logic.memory.plan import Seen

KEYS = ("a", "b")


@dataclass
class Slot:
    """One item of the model: the count outlives the value."""

    count: int = 0
    value: JsonValue = None
    expires_at: int = 0


@dataclass
class Model:
    """Seconds, integers and dicts: the rules of design 4 once more, written as plainly as can be."""

    second: int = 0
    slots: dict[str, Slot] = field(default_factory=lambda: {key: Slot() for key in KEYS})
    outcomes: dict[str, tuple[Event, tuple[str, JsonValue]]] = field(default_factory=dict)

    def version(self, key: str) -> int:
        slot = self.slots[key]
        return slot.count if slot.expires_at > self.second else 0

    def apply(self, event: Event) -> tuple[str, JsonValue] | Seen:
        if event.id in self.outcomes:
            before, _ = self.outcomes[event.id]
            return Seen.BEFORE if (before.type, before.data) == (event.type, event.data) else Seen.REUSED
        outcome = self._outcome(event)
        self.outcomes[event.id] = event, outcome
        return outcome

    def _outcome(self, event: Event) -> tuple[str, JsonValue]:
        key = str(event.data["key"])
        slot, version = self.slots[key], self.version(key)
        expected = event.data.get("expected_version")
        if event.type == "memory.read":
            return ("memory.found", [slot.value, version]) if version else ("memory.missing", 0)
        if expected is not None and expected != version:
            return "memory.conflicted", version
        if event.type == "memory.forget":
            slot.expires_at = 0
            return "memory.forgotten", version > 0
        if event.type == "memory.update":
            before = slot.value if version else 0
            assert isinstance(before, int)
            slot.value = before + 1
        else:
            slot.value = event.data["value"]
        slot.count += 1
        ttl = event.data.get("ttl", 30 * 86400)
        assert isinstance(ttl, int)
        slot.expires_at = self.second + ttl
        return ("memory.updated" if event.type == "memory.update" else "memory.written"), slot.count


def _told(decision: Decision) -> tuple[str, JsonValue]:
    """The part of an outcome that the model knows."""
    event_type, data = as_read(decision)
    match event_type:
        case "memory.found":
            return event_type, [data["value"], data["version"]]
        case "memory.conflicted":
            return event_type, data["current_version"]
        case "memory.forgotten":
            return event_type, data["existed"]
        case _:
            return event_type, data["version"]


class Batches(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.tables = Tables()
        self.batch: list[Event] = []
        self.published: list[Event] = []

    def _publish(self, event_type: str, key: str, *, reuse: int | None = None, **data: JsonValue) -> None:
        event_id = self.published[reuse % len(self.published)].id if reuse is not None and self.published else None
        given = {name: value for name, value in data.items() if value is not None}
        event = memory_event(event_type, event_id or f"e{len(self.published)}", key=key, **given)
        self.published.append(event)
        self.batch.append(event)

    @rule(
        key=st.sampled_from(KEYS),
        value=st.integers(0, 3),
        expected=st.none() | st.integers(0, 4),
        ttl=st.none() | st.integers(1, 3),
    )
    def write(self, key: str, value: int, expected: int | None, ttl: int | None) -> None:
        unit = None if ttl is None else "seconds"
        self._publish(
            "memory.write", key, type="Integer", value=value, expected_version=expected, ttl=ttl, ttl_unit=unit
        )

    @rule(key=st.sampled_from(KEYS))
    def write_what_is_expected(self, key: str) -> None:
        self._publish("memory.write", key, type="Integer", value=7, expected_version=self.model.version(key))

    @rule(key=st.sampled_from(KEYS))
    def increment(self, key: str) -> None:
        self._publish("memory.update", key, type="Integer", operation="increment")

    @rule(key=st.sampled_from(KEYS), expected=st.none() | st.integers(0, 4))
    def forget(self, key: str, expected: int | None) -> None:
        self._publish("memory.forget", key, expected_version=expected)

    @rule(key=st.sampled_from(KEYS))
    def read(self, key: str) -> None:
        self._publish("memory.read", key, type="Integer")

    @precondition(lambda self: self.published)
    @rule(which=st.integers(0, 50))
    def deliver_again(self, which: int) -> None:
        self.batch.append(self.published[which % len(self.published)])

    @precondition(lambda self: self.published)
    @rule(which=st.integers(0, 50), key=st.sampled_from(KEYS), value=st.integers(4, 9))
    def reuse_an_id(self, which: int, key: str, value: int) -> None:
        self._publish("memory.write", key, reuse=which, type="Integer", value=value)

    @rule()
    def cut_here(self) -> None:
        commands = [understand(event, self.tables.rules) for event in self.batch]
        answers = self.tables.apply(commands).answers
        for event, answer in zip(self.batch, answers, strict=True):
            expected = self.model.apply(event)
            if isinstance(answer, Decision):
                assert _told(answer) == expected
            elif answer is Seen.IN_BATCH:
                assert expected is Seen.BEFORE
            else:
                assert answer is expected
        self.batch = []

    @rule(seconds=st.integers(1, 2))
    def time_passes(self, seconds: int) -> None:
        self.cut_here()
        self.model.second += seconds
        self.tables.now = START + timedelta(seconds=self.model.second)

    @invariant()
    def items_are_those_of_the_model(self) -> None:
        for item in self.tables.items.values():
            key = item.address.rsplit("/", 1)[-1]
            assert item.version == self.model.slots[key].count
            assert live_version(item, self.tables.now) == self.model.version(key)

    @invariant()
    def history_is_whole(self) -> None:
        for address, item in self.tables.items.items():
            kept = sorted(version for where, version in self.tables.versions if where == address)
            assert kept == list(range(item.erased_version + 1, item.version + 1))


Batches.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestBatches = Batches.TestCase
