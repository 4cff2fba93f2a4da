"""Commands and what became of them: exactly one outcome each, the same bytes on every delivery, as they are stored."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from schemas.envelope import Event
from schemas.errors import Rejection
from schemas.identity import derived_id, event_key
from tests.support.checker.verdict import Verdict
from tests.support.history import History, at_earliest, at_latest, event_of
from topics.catalog import Topic
from topics.records import ReceivedRecord
from workers.logic.memory.commands import Command, Rules, understand

_OUTCOMES = {
    "memory.write": {"memory.written", "memory.conflicted"},
    "memory.update": {"memory.updated", "memory.conflicted"},
    "memory.read": {"memory.found", "memory.missing"},
    "memory.forget": {"memory.forgotten", "memory.conflicted"},
    "conversation.add": {"conversation.added"},
    "conversation.get": {"conversation.got"},
    "conversation.get_all": {"conversation.listed"},
    "conversation.delete": {"conversation.deleted"},
}


@dataclass(frozen=True, slots=True)
class Answered:
    """A command, its outcome, and between which moments (seconds) it took effect."""

    command: Command
    outcome: Event
    conflict: Event | None
    invoked: float
    returned: float

    @property
    def name(self) -> str:
        """How a violation names the command."""
        return f"{self.command.event.type} {self.command.event.id}"


def accepted_commands(history: History) -> dict[UUID, tuple[Command, ReceivedRecord]]:
    """Return the commands that must have an outcome, each with its earliest record."""
    accepted: dict[UUID, tuple[Command, ReceivedRecord]] = {}
    for record in history.log(Topic.MEMORY_COMMANDS):
        event = event_of(record)
        if event is None or (Topic.MEMORY_COMMANDS, record.value) in history.bad:
            continue
        try:
            command = understand(event, Rules())
        except Rejection:
            continue  # the dead letters are compared with what was planted
        known = accepted.get(command.key)
        if known is None or record.timestamp_ms < known[1].timestamp_ms:
            accepted[command.key] = command, record
    return accepted


def check_commands(history: History) -> tuple[Verdict, list[Answered]]:
    """Join commands, outcomes and conflict events; return the commands that have their one outcome."""
    verdict = Verdict()
    accepted = accepted_commands(history)
    outcomes = _by_command(history.log(Topic.MEMORY_RESULTS))
    conflicts = _by_command(history.log(Topic.MEMORY_CONFLICTS))
    rows = {row.command_key: row for row in history.outcomes}
    for key, copies in (*outcomes.items(), *conflicts.items()):
        if key not in accepted:
            event = _event(copies[0])
            verdict.add("outcome_of_nothing", event.type, f"{event.data.get('command_id')} was never commanded")
    for key in rows.keys() - accepted.keys():
        verdict.add("outcome_of_nothing", str(key), "its outcome is stored, and it was never commanded")
    answered: list[Answered] = []
    for key, (command, record) in accepted.items():
        name = f"{command.event.type} {command.event.id}"
        found = outcomes.get(key)
        if not found:
            verdict.add("outcome_missing", name, "no outcome on memory-results")
            continue
        reports = conflicts.get(key, [])
        _check_copies(verdict, name, found, derived_id(key, "outcome"), is_conflict=False)
        _check_copies(verdict, name, reports, derived_id(key, "conflict"), is_conflict=True)
        _check_outcome(verdict, name, command, found)
        if any(report.key != (command.address or "").encode() for report in reports):
            verdict.add("conflict_wrong", name, "the key of its conflict event is not the item's address")
        row = rows.get(key)
        if row is None:
            verdict.add("history_wrong", name, "the outcome is not in memory_outcomes")
        elif row.outcome != found[0].value or row.conflict != (reports[0].value if reports else None):
            verdict.add("outcome_changed", name, "what is stored differs from what was published")
        verdict.counts["outcome copies"] += len(found)
        answered.append(
            Answered(
                command,
                _event(found[0]),
                _event(reports[0]) if reports else None,
                at_earliest(record),
                min(at_latest(copy) for copy in found),
            )
        )
    verdict.counts["commands"] += len(accepted)
    return verdict, answered


def _event(record: ReceivedRecord) -> Event:
    event = event_of(record)
    assert event is not None, "grouped by what it says"
    return event


def _by_command(records: Sequence[ReceivedRecord]) -> Mapping[UUID, list[ReceivedRecord]]:
    copies: defaultdict[UUID, list[ReceivedRecord]] = defaultdict(list)
    for record in records:
        event = event_of(record)
        if event is not None:
            key = event_key(event.tenant, str(event.data.get("command_source")), str(event.data.get("command_id")))
            copies[key].append(record)
    return copies


def _check_copies(
    verdict: Verdict, name: str, copies: Sequence[ReceivedRecord], event_id: str, *, is_conflict: bool
) -> None:
    ids = {_event(copy).id for copy in copies}
    values = {copy.value for copy in copies}
    if len(ids) > 1:
        verdict.add("outcome_duplicated", name, f"{len(ids)} outcomes with different event ids")
    elif len(values) > 1:
        shown = " and ".join(sorted((value or b"").decode()[:600] for value in values)[:2])
        verdict.add("conflict_changed" if is_conflict else "outcome_changed", name, f"deliveries differ: {shown}")
    elif ids and ids != {event_id}:
        verdict.add("outcome_wrong", name, f"the event id {ids.pop()} does not derive from the command")


def _check_outcome(verdict: Verdict, name: str, command: Command, copies: Sequence[ReceivedRecord]) -> None:
    outcome = _event(copies[0])
    if outcome.type != "memory.rejected" and outcome.type not in _OUTCOMES[command.event.type]:
        verdict.add("outcome_wrong", name, f"the outcome is {outcome.type}")
    event = command.event
    key = event.subject or event.replykey or command.address
    for copy in copies:
        if copy.key != (key or "").encode():
            verdict.add("outcome_wrong", name, f"the outcome has the key {copy.key!r}, not {key!r}")
    if outcome.tenant != event.tenant or outcome.data.get("address") != command.address:
        verdict.add("outcome_wrong", name, f"the outcome is about {outcome.tenant} {outcome.data.get('address')}")
