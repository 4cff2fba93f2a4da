"""Workers with a bug of a known kind, for the torture's own test: python -m tests.support.mutants BUG WORKER.

Each bug is one that delivery systems have had. Product code knows nothing of them: they are patched in here.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from msgspec import structs

from schemas.envelope import Event
from schemas.exact_json import dumps, loads
from topics.codec import decode, encode

#: Long enough that a kill falls in between: where the bug lies, nothing is supposed to be able to hurt.
_GAP_S = 0.1


def memory_acknowledged_before_published() -> None:
    """The input is acknowledged first: a kill in between loses outcomes."""
    from workers.memory.worker import MemoryWorker

    finish = MemoryWorker._finish

    async def acknowledge_first(self: Any, consumer: Any, batch: Any, committed: Any, before: Any) -> Any:
        self._finished.update(batch.positions)
        await self._acknowledge(consumer)
        await asyncio.sleep(_GAP_S)
        return await finish(self, consumer, batch, committed, before)

    MemoryWorker._finish = acknowledge_first  # type: ignore[method-assign]


def memory_without_known_commands() -> None:
    """A command that comes again is decided again, and its first outcome overwritten."""
    from workers.memory import store
    from workers.memory.store import StoredOutcome

    query = store._QUERIES["write_batch"]
    place = query.index("), erased AS (")
    again = "ON CONFLICT (command_key) DO UPDATE SET outcome = excluded.outcome, conflict = excluded.conflict\n"
    queries = {**store._QUERIES, "write_batch": query[:place] + again + query[place:]}

    read_known = store.read_known

    async def know_nothing(connection: Any, keys: Sequence[UUID]) -> tuple[datetime, dict[UUID, StoredOutcome]]:
        now, _ = await read_known(connection, keys)
        return now, {}

    store._QUERIES = queries  # type: ignore[misc]
    store.read_known = know_nothing


def memory_outcome_made_anew_on_redelivery() -> None:
    """What was decided is sent again from memory of the rules, not from what is stored."""
    from workers.memory import batch
    from workers.memory.lookup import Found
    from workers.memory.store import StoredOutcome

    compose = batch.compose

    def made_anew(arrivals: Any, planned: Any, found: Found) -> Any:
        outcomes: Mapping[UUID, StoredOutcome] = {
            key: outcome._replace(outcome=_with(outcome.outcome, delivery="again"))
            for key, outcome in found.outcomes.items()
        }
        return compose(arrivals, planned, replace(found, outcomes=outcomes))

    batch.compose = made_anew  # type: ignore[attr-defined]


def _with(value: bytes, **data: str) -> bytes:
    event = decode(value)
    return encode(Event(**{**{name: getattr(event, name) for name in Event.__slots__}, "data": {**event.data, **data}}))


def memory_silent_about_lost_updates() -> None:
    """An unseen version is replaced, nobody is told."""
    from workers.logic.memory import decide

    cast("Any", decide).seen_before_a_loss = lambda *_: None


def memory_condition_checked_on_an_old_version() -> None:
    """A conditional write is let through when it is one version behind, as a check on what was read long ago would do."""
    from workers.logic.memory import decide

    live_version = decide.live_version

    def almost(command: Any, request: Any, situation: Any) -> Any:
        current = live_version(situation.item, situation.now)
        if request.expected is not None and request.expected == current - 1:
            request = structs.replace(request, expected=current)
        return write(command, request, situation)

    write = decide._write
    decide._write = almost


def memory_conversation_read_one_message_late() -> None:
    """A message is put to the list as it was one message ago, as an old read gives it, now and then."""
    from workers.logic.memory import decide

    add = decide._add_message

    def late(command: Any, request: Any, situation: Any) -> Any:
        item = situation.item
        if item.value is not None and item.version % 3 == 0:
            value = cast("Any", loads(item.value))
            item = structs.replace(item, value=dumps({**value, "messages": value["messages"][:-1]}))
        return add(command, request, structs.replace(situation, item=item))

    decide._add_message = late


def variables_acknowledged_before_committed() -> None:
    """Faust's plain behaviour: what was handed out counts as done."""
    from workers.variables import worker

    handle = worker._Session._handle

    async def acknowledge_first(self: Any, fetch: Any) -> None:
        self._app.consumer.finish(fetch)
        await self._app.consumer.commit()
        await asyncio.sleep(_GAP_S)
        await handle(self, fetch)

    worker._Session._handle = acknowledge_first  # type: ignore[method-assign]


def variables_published_before_committed() -> None:
    """Events go out before the transaction is sure: a kill in between leaves events of something that never was."""
    from workers.variables.batch import BatchProcessor

    write = BatchProcessor._write

    async def publish_first(self: Any, connection: Any, read: Any, decision: Any, *others: Any) -> None:
        await self._publisher.publish(decision.outgoing())
        await asyncio.sleep(_GAP_S)
        await write(self, connection, read, decision, *others)

    BatchProcessor._write = publish_first  # type: ignore[method-assign]


def variables_published_from_memory_only() -> None:
    """What was applied before is not sent again: a kill between commit and publication loses it."""
    from workers.variables.batch import BatchProcessor
    from workers.variables.decision import Decision

    commit = BatchProcessor._commit

    async def commit_and_dawdle(self: Any, *arguments: Any) -> Any:
        committed = await commit(self, *arguments)
        await asyncio.sleep(_GAP_S)
        return committed

    BatchProcessor._commit = commit_and_dawdle  # type: ignore[method-assign]
    cast("Any", Decision).outgoing = lambda self: self.fresh


def variables_simulated_for_real() -> None:
    """A simulated run's commands go out like anybody's."""
    from workers.logic.variables.state import ExecutionState

    cast("Any", ExecutionState).simulated = property(lambda _: False)


BUGS: Mapping[str, Callable[[], None]] = {
    bug.__name__: bug
    for bug in (
        memory_acknowledged_before_published,
        memory_without_known_commands,
        memory_outcome_made_anew_on_redelivery,
        memory_silent_about_lost_updates,
        memory_condition_checked_on_an_old_version,
        memory_conversation_read_one_message_late,
        variables_acknowledged_before_committed,
        variables_published_before_committed,
        variables_published_from_memory_only,
        variables_simulated_for_real,
    )
}


def _main() -> None:
    from workers.__main__ import main

    bug, worker = sys.argv[1:]
    if bug.startswith(worker):
        BUGS[bug]()
    sys.argv = ["tally", "worker", worker]
    main()


if __name__ == "__main__":
    _main()
