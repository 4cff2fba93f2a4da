"""Records of `memory-commands` -> commands, and dead letters for what is none."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.errors import Rejection
from topics.codec import decode
from topics.dead_letters import dead_letter
from topics.records import ReceivedRecord, Record
from workers.logic.memory.commands import Command, Rules, understand

WORKER = "memory"


@dataclass(frozen=True, slots=True)
class Letter:
    """A record that was not accepted, and why."""

    code: str
    record: Record


@dataclass(slots=True)
class Intake:
    """A poll's records, understood. `positions` are the offsets after the last one of each partition."""

    arrivals: list[tuple[ReceivedRecord, Command]] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict)
    records: int = 0


def take_in(records: Iterable[ReceivedRecord], rules: Rules, intake: Intake | None = None) -> Intake:
    """Read records, in order, after those of `intake`. Gaps of offsets are other producers' transaction markers."""
    intake = Intake() if intake is None else intake
    for record in records:
        intake.records += 1
        intake.positions[record.partition] = record.offset + 1
        try:
            command = understand(decode(record.value, record.headers), rules)
        except Rejection as refusal:
            intake.letters.append(letter(record, refusal.reason, refusal.message))
        else:
            intake.arrivals.append((record, command))
    return intake


def letter(record: ReceivedRecord, code: str, message: str) -> Letter:
    """Return the dead letter of a record."""
    return Letter(code, dead_letter(record, code, message, WORKER))


class Addresses(NamedTuple):
    """What a batch's commands name: `written` must have rows, `locked` may change, `read` is only looked at."""

    written: set[str]
    locked: set[str]
    read: set[str]


def addresses_of(commands: Iterable[Command]) -> Addresses:
    """Sort the addresses of commands by what is needed of their rows."""
    written: set[str] = set()
    removed: set[str] = set()
    read: set[str] = set()
    for command in commands:
        if command.address is not None:
            (written if command.needs_row else removed if command.may_change else read).add(command.address)
    locked = written | removed
    return Addresses(written, locked, read - locked)
