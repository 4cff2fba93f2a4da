"""Plants violations into a recorded history, and looks whether the checker finds them."""

import copy
from collections.abc import Callable

from msgspec.structs import replace

from schemas.envelope import Event
from schemas.exact_json import JsonObject
from tests.support.checker import Verdict, check
from tests.support.history import History, event_of
from topics.catalog import Topic
from topics.codec import encode
from topics.records import ReceivedRecord
from workers.logic.variables.state import ExecutionKey
from workers.variables.table import LiveExecution, recover


def records(history: History, topic: Topic, event_type: str, **data: object) -> list[ReceivedRecord]:
    """Return the first copies of events of a type whose data holds `data`."""
    found: dict[str, ReceivedRecord] = {}
    for record in history.log(topic):
        event = event_of(record)
        if event is not None and event.type == event_type and all(event.data.get(n) == v for n, v in data.items()):
            found.setdefault(event.id, record)
    return list(found.values())


def drop(history: History, topic: Topic, dropped: Callable[[Event], bool]) -> int:
    """Take events out of a log."""
    before = history.log(topic)
    history.logs[topic] = [record for record in before if (event := event_of(record)) is None or not dropped(event)]
    return len(before) - len(history.logs[topic])


def rewrite(
    history: History, topic: Topic, event_id: str, change: Callable[[JsonObject], object], *, stored: bool = True
) -> None:
    """Change every copy of an event, and what is stored of it."""
    log = history.logs[topic]
    for place, record in enumerate(log):
        event = event_of(record)
        if event is not None and event.id == event_id:
            data = copy.deepcopy(event.data)
            change(data)
            value = encode(replace(event, data=data))
            log[place] = replace(record, value=value)
            if stored:
                history.outcomes = [
                    row._replace(
                        outcome=value if row.outcome == record.value else row.outcome,
                        conflict=value if row.conflict == record.value else row.conflict,
                    )
                    for row in history.outcomes
                ]


def rewrite_first(
    history: History, topic: Topic, event_type: str, change: Callable[[JsonObject], object], **data: object
) -> Event:
    record = records(history, topic, event_type, **data)[0]
    event = event_of(record)
    assert event is not None
    rewrite(history, topic, event.id, change)
    return event


def found(history: History, kind: str) -> Verdict:
    verdict = check(history)
    assert kind in verdict.kinds, str(verdict)
    assert kind in str(verdict)
    return verdict


def command_of(event: Event) -> str:
    return str(event.data["command_id"])


def is_of(stored: bytes | None, event: Event) -> bool:
    return stored is not None and event.id.encode() in stored


def hot_writes(history: History, event_type: str = "memory.written") -> list[Event]:
    events = [event_of(record) for record in records(history, Topic.MEMORY_RESULTS, event_type)]
    return [event for event in events if event is not None and "item-" in str(event.data["address"])]


def recovered(history: History) -> dict[ExecutionKey, tuple[int, LiveExecution]]:
    executions: dict[int, dict[ExecutionKey, LiveExecution]] = {}
    for record in history.log(Topic.EXECUTIONS_TABLE):
        assert record.key is not None
        recover(executions.setdefault(record.partition, {}), record.key, record.value)
    return {key: (partition, live) for partition, mine in executions.items() for key, live in mine.items()}
