"""An in-memory stand-in for the tables of the memory worker, and short ways to give commands to the pure rules."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from uuid import UUID

from schemas.envelope import Event
from schemas.exact_json import JsonObject, JsonValue, dumps, loads
from workers.logic.memory.commands import Command, Rules, understand
from workers.logic.memory.conversations import RECORD_TYPE, Listing
from workers.logic.memory.conversions import BUILT_IN
from workers.logic.memory.decide import Decision
from workers.logic.memory.events import conflict_event, outcome_event
from workers.logic.memory.expiry import purge
from workers.logic.memory.items import Item, Version, is_live
from workers.logic.memory.plan import Plan, Stored, entry_of, needed_bases, needed_listings, plan
from workers.logic.memory.types import TypeRegistry

START = datetime(2026, 11, 30, 12, tzinfo=UTC)
RULES = Rules(types=TypeRegistry({}, BUILT_IN))
ADDRESS = "default/workflow/onboarding/patient/p1/stage"
_numbers = count(1)


def memory_event(
    event_type: str, event_id: str | None = None, run: str | None = "run-1", /, **data: JsonValue
) -> Event:
    """A command on the item at `ADDRESS`, unless `data` says otherwise; None in `data` leaves a field out."""
    fields: JsonObject = (
        {"workflow": "support"}
        if event_type.startswith("conversation.")
        else {
            "scope": "workflow",
            "workflow": "onboarding",
            "subject": {"kind": "patient", "id": "p1"},
            "key": "stage",
        }
    )
    return Event(
        id=event_id or f"c{next(_numbers)}",
        source="/test",
        type=event_type,
        subject=run,
        data={**fields, **data},
    )


@dataclass
class Tables:
    """What PostgreSQL would hold. `apply` does what one batch's transaction does."""

    now: datetime = START
    rules: Rules = RULES
    items: dict[str, Item] = field(default_factory=dict)
    versions: dict[tuple[str, int], Version] = field(default_factory=dict)
    known: dict[UUID, bytes] = field(default_factory=dict)

    def apply(self, commands: Sequence[Command]) -> Plan:
        addresses = {command.address for command in commands}
        items = {address: item for address, item in self.items.items() if address in addresses}
        bases = {key: self.versions[key] for key in needed_bases(commands, items) if key in self.versions}
        listings = {prefix: self._listing(prefix) for prefix in needed_listings(commands)}
        stored = Stored(items, dict(self.known), bases, listings)
        planned = plan(commands, stored, now=self.now, rules=self.rules)
        self.items.update(planned.items)
        self.versions.update({(version.address, version.version): version for version in new_versions(planned)})
        for address, erased in planned.erased.items():
            self.versions = {
                key: version for key, version in self.versions.items() if key[0] != address or key[1] > erased
            }
        for decision in planned.decisions:
            self.known[decision.command.key] = decision.command.digest
        return planned

    def purge(self) -> None:
        """Do what the sweep does."""
        overdue = sorted(key for key, version in self.versions.items() if version.expires_at <= self.now)
        step = purge(overdue, self.items, self.now)
        for item in step.items:
            self.items[item.address] = item
        gone = set(step.versions)
        self.versions = {
            key: version
            for key, version in self.versions.items()
            if key not in gone and key[1] > self.items[key[0]].erased_version
        }

    def _listing(self, prefix: str) -> Listing:
        there = [
            item
            for address, item in self.items.items()
            if address.startswith(prefix) and item.type == RECORD_TYPE and is_live(item, self.now)
        ]
        return Listing(there, len(there))

    def decide(self, *events: Event) -> list[Decision]:
        """Apply events as one batch, each with a decision of its own."""
        answers = self.apply([understand(event, self.rules) for event in events]).answers
        decisions = [answer for answer in answers if isinstance(answer, Decision)]
        assert len(decisions) == len(events)
        return decisions

    def say(self, event_type: str, run: str | None = "run-1", /, **data: JsonValue) -> tuple[str, JsonObject]:
        """Apply one command; return type and data of its outcome as a reader gets them."""
        (decision,) = self.decide(memory_event(event_type, None, run, **data))
        return as_read(decision)

    def conflict(self, event_type: str, run: str | None = "run-1", /, **data: JsonValue) -> JsonObject | None:
        """Apply one command; return the race that it met."""
        (decision,) = self.decide(memory_event(event_type, None, run, **data))
        event = conflict_event(decision)
        return None if event is None else read_back(event.data)

    def later(self, **units: int) -> None:
        self.now += timedelta(**units)


def new_versions(planned: Plan) -> list[Version]:
    """Every entry that a batch adds to the history, in no order."""
    return [*planned.replaced, *(entry_of(item) for item in planned.items.values() if item.value is not None)]


def as_read(decision: Decision) -> tuple[str, JsonObject]:
    event = outcome_event(decision)
    names = ("command_id", "command_source", "address")
    return event.type, {name: value for name, value in read_back(event.data).items() if name not in names}


def read_back(data: JsonObject) -> JsonObject:
    parsed = loads(dumps(data))
    assert isinstance(parsed, dict)
    return parsed
