"""What the variable worker published is exactly what is committed: nothing else, nothing missing, the same bytes."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from schemas.envelope import Event
from schemas.identity import key_of
from tests.support.checker.executions import Modelled
from tests.support.checker.verdict import Verdict
from tests.support.history import History, event_of
from topics.catalog import Topic
from topics.codec import decode
from workers.logic.variables.state import ExecutionKey
from workers.logic.variables.step import SOURCE

_TOPICS = (Topic.VARIABLE_UPDATES, Topic.NODE_RESULTS, Topic.MEMORY_COMMANDS, Topic.EXECUTION_EVENTS)


def check_published(history: History, models: Mapping[ExecutionKey, Modelled]) -> Verdict:
    """Compare the logs with what the model's revisions publish."""
    verdict = Verdict()
    due: dict[tuple[Topic, UUID], tuple[bytes, bytes]] = {}
    #: Who says it, and after how much else.
    turns: dict[tuple[Topic, UUID], tuple[ExecutionKey, int]] = {}
    for model in models.values():
        for turn, (topic, key, value) in enumerate(model.published):
            due[topic, _key_of(value)] = key, value
            turns[topic, _key_of(value)] = model.key, turn
    found: set[tuple[Topic, UUID]] = set()
    last: dict[ExecutionKey, int] = {}
    newest: dict[tuple[Topic, bytes | None, ExecutionKey], int] = {}
    for topic in _TOPICS:
        for record in history.log(topic):
            event = event_of(record)
            if event is None or event.source != SOURCE:
                continue
            name = f"{topic.value}: {event.type} {event.id} of {event.subject}"
            verdict.counts["published copies"] += 1
            place = topic, key_of(event)
            if place not in due:
                verdict.add("published_uncommitted", name, "no committed revision brought it about")
                continue
            if due[place] != (record.key, record.value):
                verdict.add("published_changed", name, "its bytes or its key are not those that are committed")
            if place in found:
                continue
            found.add(place)
            key, turn = turns[place]
            if event.type == "variables.revised":
                revision = int(str(event.data["revision"]))
                _check_order(verdict, name, models[key].revisions, last.get(key), revision)
                last[key] = revision
            lane = topic, record.key, key
            if turn < newest.get(lane, 0):
                verdict.add("published_order", name, "it is first published after what its execution said later")
            newest[lane] = turn
    for topic, event_key in due.keys() - found:
        event = _event(due[topic, event_key][1])
        verdict.add("published_missing", f"{topic.value}: {event.type} of {event.subject}", f"{event.id} is not there")
    verdict.counts["published events"] += len(due)
    return verdict


def _check_order(verdict: Verdict, name: str, revisions: Sequence[int], last: int | None, revision: int) -> None:
    place = revisions.index(revision)
    if last != (revisions[place - 1] if place else None):
        verdict.add("revision_order", name, f"revision {revision} is first published after {last}")


def _event(value: bytes) -> Event:
    return decode(value)


def _key_of(value: bytes) -> UUID:
    return key_of(_event(value))
