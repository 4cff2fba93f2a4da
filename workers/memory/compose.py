"""A batch's plan -> the rows of its outcomes, and the records that are published. Pure: what is stored is published."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas.exact_json import JsonObject
from topics.catalog import Topic
from topics.codec import STRUCTURED_HEADERS, encode
from topics.records import ReceivedRecord, Record
from workers.logic.memory.commands import Command
from workers.logic.memory.decide import Decision
from workers.logic.memory.events import changed_event, conflict_event, outcome_event, reply_key
from workers.logic.memory.items import Item
from workers.logic.memory.plan import Plan, Seen
from workers.memory.intake import Letter, letter
from workers.memory.lookup import Found
from workers.memory.store import StoredOutcome


@dataclass(slots=True)
class Committed:
    """What a batch leaves to publish, in order, and what there is to count."""

    outgoing: list[Record] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    #: The newest state that `outgoing` shows of each changed item.
    changed: dict[str, Item] = field(default_factory=dict)
    conflicts: list[JsonObject] = field(default_factory=list)
    applied: int = 0
    replayed: int = 0


@dataclass(slots=True)
class Composed:
    """A plan as rows of outcomes, and as what is to be published."""

    outcomes: list[StoredOutcome] = field(default_factory=list)
    committed: Committed = field(default_factory=Committed)

    def add(self, outcome: StoredOutcome) -> None:
        """Publish the outcome and the conflict that are stored for a command."""
        outgoing = self.committed.outgoing
        outgoing.append(Record(Topic.MEMORY_RESULTS, outcome.reply_key.encode(), outcome.outcome, STRUCTURED_HEADERS))
        if outcome.conflict is not None:
            assert outcome.address is not None, "a conflict is about an item"
            outgoing.append(
                Record(Topic.MEMORY_CONFLICTS, outcome.address.encode(), outcome.conflict, STRUCTURED_HEADERS)
            )

    def show(self, item: Item) -> None:
        """Publish the state of an item."""
        self.committed.changed[item.address] = item
        self.committed.outgoing.extend(change_records(item))


def compose(arrivals: Iterable[tuple[ReceivedRecord, Command]], planned: Plan, found: Found) -> Composed:
    """Return the rows and records of a plan: the bytes that are stored are the bytes that are published."""
    composed = Composed()
    committed = composed.committed
    for (record, command), answer in zip(arrivals, planned.answers, strict=True):
        if isinstance(answer, Decision):
            outcome = _stored_outcome(answer)
            composed.outcomes.append(outcome)
            composed.add(outcome)
            committed.applied += 1
            if answer.conflict is not None:
                committed.conflicts.append(answer.conflict)
            if answer.item is not None:
                composed.show(answer.item)
        elif answer is Seen.BEFORE:
            composed.add(found.outcomes[command.key])
            committed.replayed += 1
            item = found.items.get(command.address or "")
            # Not this command's change, which may lie under others, but the newest: who was killed may have published
            # an older one last.
            shown = not command.may_change or command.address in committed.changed
            if item is not None and item.change is not None and not shown:
                composed.show(item)
        elif answer is Seen.REUSED:
            message = f"the id {command.event.id!r} of {command.event.source!r} came before with other content"
            committed.letters.append(letter(record, "id_reused", message))
    return composed


def _stored_outcome(decision: Decision) -> StoredOutcome:
    conflict = conflict_event(decision)
    return StoredOutcome(
        decision.command.key,
        decision.command.digest,
        decision.command.address,
        reply_key(decision),
        encode(outcome_event(decision)),
        None if conflict is None else encode(conflict),
    )


def change_records(item: Item) -> list[Record]:
    """Return the records that show an item: its state, and a tombstone after it when the item is gone."""
    key = item.address.encode()
    state = Record(Topic.MEMORY_CHANGES, key, encode(changed_event(item)), STRUCTURED_HEADERS)
    return [state] if item.value is not None else [state, Record(Topic.MEMORY_CHANGES, key, None)]
