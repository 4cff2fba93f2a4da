"""Random commands in random batches against a memory, beside the plain model of it.

Commands come again, in the same batch or in later ones; ids come again with other content; batches are cut anywhere;
time passes in between, and the sweep runs whenever it likes. Which memory it is, `Memory` says.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from schemas.envelope import Event
from schemas.exact_json import JsonObject, JsonValue
from tests.support.memory_model import Model
from tests.support.memory_store import memory_event
from workers.logic.memory.plan import Seen


class Told(NamedTuple):
    """What a memory published of a command: the outcome, and the conflict."""

    type: str
    data: JsonObject
    conflict: JsonObject | None


class Row(NamedTuple):
    """What a memory holds at an address. `kept` are the versions that people may see; conversations keep no values."""

    version: int
    sequence: int
    value: JsonValue
    live: bool
    kept: dict[int, JsonValue]


class Memory(Protocol):
    """A memory under test; `second` is the time since the model's start."""

    second: int
    #: Whose items they are, and what the commands' source is: another one in each example.
    workflow: str

    def apply(self, events: Sequence[Event]) -> list[Told | Seen]: ...
    def pass_time(self, seconds: int) -> None: ...
    def sweep(self) -> None: ...
    def rows(self) -> dict[str, Row]: ...


RUNS = st.sampled_from(["run-1", "run-2", None])
VERSIONS = st.none() | st.integers(0, 5)
TTLS = st.sampled_from([None, 1, 1, 2, "keep", "keep"])
DOCUMENTS = st.dictionaries(st.sampled_from("xyz"), st.integers(0, 2))
PATCHES = st.dictionaries(st.sampled_from("xyz"), st.none() | st.integers(0, 2))
VALUES = {"n": st.integers(0, 3), "doc": DOCUMENTS, "list": st.lists(st.integers(0, 3), max_size=3)}
TYPES = {"n": "Integer", "doc": "Json", "list": "Integer[]"}
KEYS = st.sampled_from(list(TYPES))
RECORDS = st.sampled_from(["s-1", "s-2"])
ROLES = st.sampled_from(["user", "assistant"])
LIMITS = st.none() | st.integers(1, 3)
ORDERS = st.sampled_from(["asc", "desc"])


class MemoryMachine(RuleBasedStateMachine):
    """The rules of the game; a subclass gives the memory."""

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.memory = memory
        self.model = Model(second=memory.second)
        self.batch: list[Event] = []
        self.published: list[Event] = []

    def _publish(
        self,
        event_type: str,
        run: str | None,
        *,
        reuse: int | None = None,
        ttl: int | str | None = None,
        **data: object,
    ) -> None:
        number = len(self.published)
        event_id = self.published[reuse % number].id if reuse is not None and self.published else f"e{number}"
        given = {name: value for name, value in data.items() if value is not None}
        if ttl is not None:
            given |= {"ttl": ttl} if ttl == "keep" else {"ttl": ttl, "ttl_unit": "seconds"}
        event_id = f"{self.memory.workflow}-{event_id}" if reuse is None or not self.published else event_id
        event = memory_event(event_type, event_id, run, workflow=self.memory.workflow, **given)  # type: ignore[arg-type]
        self.published.append(event)
        self.batch.append(event)

    @rule(data=st.data(), key=KEYS, run=RUNS, expected=VERSIONS, merges=st.booleans(), ttl=TTLS)
    def write_on_condition(self, data, key, run, expected, merges, ttl):
        self._publish(
            "memory.write",
            run,
            key=key,
            type=TYPES[key],
            value=data.draw(VALUES[key]),
            expected_version=expected,
            on_conflict="merge" if merges else None,
            ttl=ttl,
        )

    @rule(data=st.data(), key=KEYS, run=RUNS, seen=VERSIONS, ttl=TTLS)
    def write_what_was_made_of_a_version(self, data, key, run, seen, ttl):
        value = data.draw(VALUES[key])
        self._publish("memory.write", run, key=key, type=TYPES[key], value=value, read_version=seen, ttl=ttl)

    @rule(data=st.data(), key=KEYS, run=RUNS, behind=st.integers(0, 1), merges=st.booleans())
    def write_on_what_was_just_seen(self, data, key, run, behind, merges):
        self._publish(
            "memory.write",
            run,
            key=key,
            type=TYPES[key],
            value=data.draw(VALUES[key]),
            expected_version=max(0, self.model.version(key) - behind),
            on_conflict="merge" if merges else None,
        )

    @rule(operation=st.sampled_from(["increment", "max", "min"]), run=RUNS, by=st.integers(0, 3), expected=VERSIONS)
    def change_a_number(self, operation, run, by, expected):
        operand = {"by" if operation == "increment" else "value": by}
        fields = {"key": "n", "type": "Integer", "operation": operation, "expected_version": expected}
        self._publish("memory.update", run, **fields, **operand)

    @rule(run=RUNS, value=st.integers(0, 3), max_items=st.none() | st.integers(1, 3), seen=VERSIONS)
    def append(self, run, value, max_items, seen):
        fields = {"key": "list", "type": "Integer[]", "operation": "append", "value": value, "max_items": max_items}
        self._publish("memory.update", run, **fields, read_version=seen)

    @rule(run=RUNS, values=st.lists(st.integers(0, 3), max_size=3), ttl=TTLS)
    def unite(self, run, values, ttl):
        self._publish("memory.update", run, key="list", type="Integer[]", operation="union", value=values, ttl=ttl)

    @rule(run=RUNS, patch=PATCHES, seen=VERSIONS, expected=st.none() | st.none() | VERSIONS)
    def patch(self, run, patch, seen, expected):
        fields = {"key": "doc", "type": "Json", "operation": "merge_patch", "value": patch}
        self._publish("memory.update", run, **fields, read_version=seen, expected_version=expected)

    @rule(key=KEYS, run=RUNS, expected=VERSIONS)
    def forget(self, key, run, expected):
        self._publish("memory.forget", run, key=key, expected_version=expected)

    @rule(key=KEYS, run=RUNS, kind=st.sampled_from(["Integer", "Decimal", "String", "Json", "Integer[]", "String[]"]))
    def read(self, key, run, kind):
        self._publish("memory.read", run, key=key, type=kind)

    @rule(record=RECORDS, run=RUNS, role=ROLES, content=st.sampled_from(["hello", "bye"]))
    def say(self, record, run, role, content):
        self._publish("conversation.add", run, id=record, role=role, content=content)

    @rule(record=RECORDS, run=RUNS, limit=LIMITS, order=ORDERS)
    def recall(self, record, run, limit, order):
        self._publish("conversation.get", run, id=record, limit=limit, sort_order=order)

    @rule(run=RUNS, limit=LIMITS, order=ORDERS, role=st.none() | ROLES)
    def list_records(self, run, limit, order, role):
        self._publish("conversation.get_all", run, limit=limit, sort_order=order, filter_type=role)

    @rule(record=RECORDS, run=RUNS)
    def delete_a_record(self, record, run):
        self._publish("conversation.delete", run, id=record)

    @precondition(lambda self: self.published)
    @rule(which=st.integers(0, 50))
    def deliver_again(self, which):
        self.batch.append(self.published[which % len(self.published)])

    @precondition(lambda self: self.published)
    @rule(which=st.integers(0, 50), value=st.integers(4, 9))
    def reuse_an_id(self, which, value):
        self._publish("memory.write", "run-1", reuse=which, key="n", type="Integer", value=value)

    @rule()
    def cut_here(self):
        before = set(self.model.known)
        for event, told in zip(self.batch, self.memory.apply(self.batch), strict=True):
            is_new = event.id not in self.model.known
            due = self.model.apply(event)
            if due is None:
                assert told is Seen.REUSED
            elif is_new:
                assert isinstance(told, Told)
                _compare(told, due)
            else:
                assert told is (Seen.BEFORE if event.id in before else Seen.IN_BATCH)
        self.batch = []
        self._compare_rows()

    @rule(seconds=st.integers(1, 2))
    def time_passes(self, seconds):
        self.cut_here()
        self.model.second += seconds
        self.memory.pass_time(seconds)

    @rule()
    def sweep(self):
        self.cut_here()
        self.memory.sweep()
        self.model.purge()
        self._compare_rows()

    def _compare_rows(self) -> None:
        rows = self.memory.rows()
        for name, slot in self.model.slots.items():
            row = rows.pop(name, Row(0, 0, None, live=False, kept={}))
            assert (row.version, row.sequence) == (slot.count, slot.changes), name
            entry = self.model.live(name)
            assert row.live == (entry is not None), name
            if entry is not None:
                assert row.value == entry.value, name
            kept = self.model.kept(name)
            assert row.kept == (dict.fromkeys(kept) if name.startswith("s-") else kept), name
        assert {name: row for name, row in rows.items() if row.version} == {}


def name_of(address: str) -> str:
    """Return what the model calls the item at an address: its key, or a record's id."""
    *_, where, key = address.split("/")
    return where if key == "messages" else key


def _compare(told: Told, due) -> None:
    assert (told.type, {name: told.data.get(name) for name in due.data}) == (due.type, due.data)
    if due.race is None:
        assert told.conflict is None
        return
    assert told.conflict is not None
    shown = {name: told.conflict.get(name) for name in due.race}
    assert {**shown, "overlapping_paths": sorted(shown["overlapping_paths"])} == due.race
    assert (told.conflict["diff"] is None) == (due.race["base"] is None)
