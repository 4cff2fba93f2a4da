"""The plan of batches against a plain model of the memory, on tables that are dictionaries."""

from collections.abc import Sequence
from datetime import timedelta

from hypothesis import settings

from schemas.envelope import Event
from schemas.exact_json import loads
from tests.support.memory_machine import MemoryMachine, Row, Told, name_of
from tests.support.memory_store import START, Tables, as_read, read_back
from workers.logic.memory.commands import understand
from workers.logic.memory.decide import Decision
from workers.logic.memory.events import conflict_event
from workers.logic.memory.items import is_live
from workers.logic.memory.plan import Seen


class PureMemory:
    """The pure rules over dictionaries."""

    def __init__(self) -> None:
        self.second = 0
        self.workflow = "w"
        self.tables = Tables()

    def apply(self, events: Sequence[Event]) -> list[Told | Seen]:
        answers = self.tables.apply([understand(event, self.tables.rules) for event in events]).answers
        return [_told(answer) if isinstance(answer, Decision) else answer for answer in answers]

    def pass_time(self, seconds: int) -> None:
        self.second += seconds
        self.tables.now = START + timedelta(seconds=self.second)

    def sweep(self) -> None:
        self.tables.purge()

    def rows(self) -> dict[str, Row]:
        tables = self.tables
        found = {}
        for address, item in tables.items.items():
            kept = {
                number: None if version.value is None else loads(version.value)
                for (where, number), version in tables.versions.items()
                if where == address and number > item.erased_version and version.expires_at > tables.now
            }
            live = is_live(item, tables.now)
            found[name_of(address)] = Row(item.version, item.sequence, loads(item.value or b"null"), live, kept)
        return found


def _told(decision: Decision) -> Told:
    conflict = conflict_event(decision)
    return Told(*as_read(decision), None if conflict is None else read_back(conflict.data))


class Batches(MemoryMachine):
    def __init__(self) -> None:
        super().__init__(PureMemory())


Batches.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
TestBatches = Batches.TestCase
