"""Finding what came of an event by its id, wherever it was published from: `tally await`."""

import asyncio
from dataclasses import dataclass

from schemas.dead_letters import DeadLettered
from schemas.envelope import Event
from schemas.errors import Rejection
from topics.catalog import Topic
from topics.codec import decode
from topics.connection import KafkaConnection
from topics.dead_letters import original_of
from topics.replies import cause_of
from topics.subscriber import Received, Subscriber

_TOPICS = (Topic.MEMORY_RESULTS, Topic.NODE_RESULTS, Topic.VARIABLE_UPDATES, Topic.DEAD_LETTERS)
#: The id was used twice: the first event with it may still have its outcome to come.
_OF_ANOTHER = frozenset({"id_reused"})


@dataclass(frozen=True, slots=True)
class Refused:
    """The event was not accepted: its dead letter, and what that says."""

    letter_id: str
    letter: DeadLettered


async def find_outcome(
    connection: KafkaConnection, event_id: str, *, timeout_s: float, source: str | None = None
) -> Event | Refused | None:
    """Return the outcome of a command, the answer of a request, or the end of an execution, by id.

    Reads everything that is kept, then waits for what comes. Without an outcome, the dead letter of that event is
    returned; None when nothing came within `timeout_s`. Raises `DependencyDown`.
    """
    search = _Search(event_id, source)
    async with Subscriber(connection, _TOPICS, start="beginning", client_id="tally-await") as subscriber:
        try:
            async with asyncio.timeout(timeout_s):
                # Topics come in no order: an outcome counts more than a letter, which may have been replayed.
                async for received in subscriber.until_end():
                    if search.finds(received):
                        return search.outcome
                if search.is_refused:
                    return search.refused
                async for received in subscriber:
                    if search.finds(received) or search.is_refused:
                        return search.outcome or search.refused
        except TimeoutError:
            return search.refused
    raise AssertionError("a subscription has no end")


class _Search:
    """What was found of one id so far."""

    def __init__(self, event_id: str, source: str | None) -> None:
        self._event_id = event_id
        self._needle = event_id.encode()
        self._source = source
        self.outcome: Event | None = None
        self.refused: Refused | None = None

    @property
    def is_refused(self) -> bool:
        """Say whether nothing but a dead letter is to be expected."""
        return self.refused is not None and self.refused.letter.code not in _OF_ANOTHER

    def finds(self, received: Received) -> bool:
        """Look at a record; say whether it is the outcome."""
        event = received.event
        if event is None:
            return False
        if received.record.topic is Topic.DEAD_LETTERS:
            self._note_letter(event, received)
        elif self._needle in (received.record.value or b"") and self._answers(event):
            self.outcome = event
        return self.outcome is not None

    def _note_letter(self, event: Event, received: Received) -> None:
        letter = received.data
        assert isinstance(letter, DeadLettered), "nothing else is on this topic"
        original = original_of(event, Topic(letter.topic))
        if original.value is None:
            return
        try:
            refused = decode(original.value, original.headers)
        except Rejection:
            return  # what has no envelope has no id, and is nobody's
        if refused.id == self._event_id and self._source in (None, refused.source):
            self.refused = Refused(event.id, letter)

    def _answers(self, event: Event) -> bool:
        if event.type == "execution.finalized":
            return event.subject == self._event_id
        cause, source = cause_of(event)
        return cause == self._event_id and self._source in (None, source)
