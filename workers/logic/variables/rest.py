"""What an event set free and could not carry out in one revision: kept in the store until the next one goes on with it.

Nothing else of the run is applied before: so the rest finds the store as it was left, and a run whose events are cut
into many revisions gets the same answers, in the same order, as one whose events are not.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, cast
from uuid import UUID

from schemas.envelope import Event
from schemas.exact_json import MAX_NESTING, JsonObject, JsonValue, dumps, loads
from schemas.identity import derived_id
from workers.logic.variables import entries
from workers.logic.variables.open_requests import Request
from workers.logic.variables.state import ExecutionState
from workers.logic.variables.step import Context, Ending, Step

#: What the revisions of one event tell of it alike.
CAUSE_FIELDS: Final = ("activity_id", "node_id", "iteration")
#: A piece becomes a record of the table's changelog; a character has up to four bytes.
_PIECE_CHARACTERS: Final = 256 * 1024
#: The values lie two levels deeper than in the store.
_MAX_NESTING: Final = MAX_NESTING + 8


class Rest(NamedTuple):
    """What is left to do of an event: the key of the revision that does it, and its content as it is stored."""

    key: UUID
    content: JsonObject


def key_after(key: UUID) -> UUID:
    """Return the key of the revision that goes on where the one of `key` stopped."""
    return UUID(derived_id(key, "rest"))


def unfinished(state: ExecutionState) -> Rest | None:
    """Return what the event before left to do; most leave nothing."""
    if state.raw(entries.rest(0)) is None:
        return None
    content = cast("JsonObject", loads("".join(_pieces(state)).encode(), _MAX_NESTING))
    return Rest(UUID(str(content["key"])), content)


def _pieces(state: ExecutionState) -> Iterable[str]:
    number = 0
    while isinstance(piece := state.read(entries.rest(number)), str):
        yield piece
        number += 1


def leave(step: Step) -> UUID | None:
    """Keep what the step has left to do; return the key of the revision that will do it, or None."""
    state = step.state
    endings = [ending for ending in step.endings if _sets_free(state, ending)]
    runnable = {key: answers for key, answers in step.runnable.items() if state.requests.get(key) is not None}
    if not endings and not runnable:
        return None
    key, event, values = key_after(step.key), step.event, _Values()
    content: JsonObject = {
        "key": str(key),
        "part": step.part + 1,
        "id": event.id,
        "source": event.source,
        "type": event.type,
        "traceparent": event.traceparent,
        "data": {name: event.data[name] for name in CAUSE_FIELDS if event.data.get(name)},
        "endings": [[*ending[:-1], values.kept(ending.outputs)] for ending in endings],
        "runnable": [
            [request, {awaited: values.kept(bound) for awaited, bound in answers.items()}]
            for request, answers in runnable.items()
        ],
        "values": values.all,
    }
    text = dumps(content).decode()
    for number, start in enumerate(range(0, len(text), _PIECE_CHARACTERS)):
        state.write(entries.rest(number), text[start : start + _PIECE_CHARACTERS])
    return key


def _sets_free(state: ExecutionState, ending: Ending) -> bool:
    following = state.requests.first_in(ending.freed_domain) if ending.freed_domain is not None else None
    return following is not None or bool(state.requests.waiting_for(ending.key))


class _Values:
    """Values by their place in a list, each once: what thousands wait for is one value."""

    def __init__(self) -> None:
        self.all: list[JsonValue] = []
        self._places: dict[bytes, int] = {}
        self._known: dict[int, int] = {}

    def kept(self, values: Mapping[str, JsonValue]) -> JsonObject:
        """Return the places of `values`."""
        return {name: self._place(value) for name, value in values.items()}

    def _place(self, value: JsonValue) -> int:
        # Most are one object in memory, and are written out once.
        place = self._known.get(id(value))
        if place is None:
            place = self._places.setdefault(dumps(value), len(self.all))
            if place == len(self.all):
                self.all.append(value)
            self._known[id(value)] = place
        return place


def taken_up(state: ExecutionState, context: Context) -> Step:
    """Return the step that goes on with what the event before left to do; it is no rest any more."""
    rest = unfinished(state)
    assert rest is not None, "the caller has seen it"
    content = rest.content
    event = Event(
        id=str(content["id"]),
        source=str(content["source"]),
        type=str(content["type"]),
        subject=state.key.execution_id,
        tenant=state.key.tenant,
        traceparent=cast("str | None", content["traceparent"]),
        data=cast("JsonObject", content["data"]),
    )
    step = Step(state, event, context, rest.key, part=cast("int", content["part"]))
    values = cast("list[JsonValue]", content["values"])
    for *told, outputs in cast("list[list[JsonValue]]", content["endings"]):
        step.endings.append(Ending(*cast("tuple[str, str, str, str | None, str]", told), _given(values, outputs)))
    for key, answers in cast("list[tuple[str, JsonObject]]", content["runnable"]):
        step.runnable[key] = {awaited: _given(values, places) for awaited, places in answers.items()}
        waiting = state.requests.waiting(key)
        for awaited, bound in step.runnable[key].items():
            if waiting is not None and awaited in waiting.left:  # not where the state was kept in memory
                state.take_answer(cast("Request", state.requests.get(key)), awaited, bound)
    for number in range(len(list(_pieces(state)))):
        state.remove(entries.rest(number))
    return step


def _given(values: list[JsonValue], places: JsonValue) -> JsonObject:
    return {name: values[cast("int", place)] for name, place in cast("JsonObject", places).items()}
