"""A batch of commands over items as they were read -> one decision each, and what to write.

The same address many times in a batch is a loop; the same command twice gives its first decision.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from uuid import UUID

from workers.logic.memory.commands import Command, Forget, ListRecords, Rules, Update, Write
from workers.logic.memory.conversations import RECORD_TYPE, Listing, overlaid
from workers.logic.memory.decide import Decision, Situation, decide
from workers.logic.memory.items import Item, Version


class Seen(Enum):
    """Why a command is not decided now."""

    #: It was decided in an earlier batch: what was stored then is sent again.
    BEFORE = "before"
    #: It came twice in this batch: its one decision is sent once.
    IN_BATCH = "in_batch"
    #: Its id was used before for other content: a dead letter (`id_reused`).
    REUSED = "reused"


Answer = Decision | Seen


@dataclass(frozen=True, slots=True)
class Stored:
    """What was read before deciding. What is not listed was not stored."""

    items: Mapping[str, Item] = field(default_factory=dict)
    #: Command key -> content digest of the commands that were decided before.
    known: Mapping[UUID, bytes] = field(default_factory=dict)
    #: (address, version) -> entry of the history: the bases that `needed_bases` asked for.
    bases: Mapping[tuple[str, int], Version] = field(default_factory=dict)
    #: Prefix -> conversation records below it.
    listings: Mapping[str, Listing] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer to each command, in their order, and the state afterwards."""

    answers: Sequence[Answer]
    #: The items that changed, as they are after the batch.
    items: Mapping[str, Item]
    #: The entries of the history that the batch wrote and replaced again, without those that it erased. What it
    #: wrote last of each item is in `items`.
    replaced: Sequence[Version]
    #: Address -> the version up to which its history is to be erased.
    erased: Mapping[str, int]

    @property
    def decisions(self) -> Iterable[Decision]:
        """The decisions that are new."""
        return (answer for answer in self.answers if isinstance(answer, Decision))


def needed_bases(commands: Iterable[Command], items: Mapping[str, Item]) -> list[tuple[str, int]]:
    """Return the entries of the history that a conflict of these commands would show.

    The version in the row itself, and those that the batch writes, are at hand.
    """
    needed: set[tuple[str, int]] = set()
    for command in commands:
        base = _base_of(command)
        if not base or command.address is None:
            continue
        item = items.get(command.address)
        if item is not None and item.erased_version < base < item.version:
            needed.add((command.address, base))
    return sorted(needed)


def _base_of(command: Command) -> int | None:
    request = command.request
    if isinstance(request, (Write, Update)):
        return request.expected if request.expected is not None else request.read_version
    if isinstance(request, Forget):
        return request.expected
    return None


def needed_listings(commands: Iterable[Command]) -> list[str]:
    """Return the prefixes whose conversation records are asked for."""
    return sorted({command.request.prefix for command in commands if isinstance(command.request, ListRecords)})


def plan(commands: Iterable[Command], stored: Stored, *, now: datetime, rules: Rules) -> Plan:
    """Decide a batch, in order. `now` is the database's clock when the items were read."""
    folding = _Folding(stored, now, rules)
    answers = [folding.answer(command) for command in commands]
    return Plan(answers, folding.changed, folding.replaced(), folding.erased)


class _Folding:
    """The state of the items while a batch is decided."""

    def __init__(self, stored: Stored, now: datetime, rules: Rules) -> None:
        self._stored = stored
        self._now = now
        self._rules = rules
        self._digests: dict[UUID, bytes] = {}
        #: (address, version) -> what a write of this batch replaced: later commands may have started from it.
        self._past: dict[tuple[str, int], Item] = {}
        self._replaced: list[Item] = []
        self.changed: dict[str, Item] = {}
        self.erased: dict[str, int] = {}

    def answer(self, command: Command) -> Answer:
        key = command.key
        known = self._stored.known.get(key)
        if known is not None:
            return Seen.BEFORE if known == command.digest else Seen.REUSED
        known = self._digests.get(key)
        if known is not None:
            return Seen.IN_BATCH if known == command.digest else Seen.REUSED
        self._digests[key] = command.digest
        item = self._item(command.address)
        decision = decide(command, Situation(item, self._now, self._rules, self._version, self._listing))
        if decision.item is not None:
            self._apply(item, decision.item)
        return decision

    def _item(self, address: str | None) -> Item:
        if address is None:
            return Item("")
        return self.changed.get(address) or self._stored.items.get(address) or Item(address)

    def _apply(self, before: Item, item: Item) -> None:
        address = item.address
        if before.value is not None:
            self._past[address, before.version] = before
            if address in self.changed:
                self._replaced.append(before)
        self.changed[address] = item
        if item.value is None:
            self.erased[address] = item.erased_version

    def _version(self, place: tuple[str, int]) -> Version | None:
        item = self._past.get(place)
        return self._stored.bases.get(place) if item is None else entry_of(item)

    def _listing(self, prefix: str) -> Listing:
        listing = self._stored.listings.get(prefix, Listing())
        return overlaid(listing, prefix, self._stored.items, self.changed.values(), self._now)

    def replaced(self) -> list[Version]:
        return [entry_of(item) for item in self._replaced if item.version > self.erased.get(item.address, 0)]


def entry_of(item: Item) -> Version:
    """Return the entry that a value has in the history of its item."""
    assert item.type is not None
    assert item.changed_at is not None
    assert item.expires_at is not None
    assert item.changed_by is not None
    value = None if item.type == RECORD_TYPE else item.value
    return Version(
        item.address, item.version, item.type, value, item.writer, item.changed_at, item.expires_at, item.changed_by
    )
