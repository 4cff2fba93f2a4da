"""A fork: the start of a new execution whose store is another's at a revision, and whether a worker took it."""

import asyncio
from contextlib import AsyncExitStack
from typing import cast

from schemas.dead_letters import DeadLettered
from schemas.envelope import Event
from schemas.exact_json import JsonObject, JsonValue, loads
from schemas.identity import key_of
from topics.catalog import Topic
from topics.publisher import Publisher
from topics.routing import record_of
from topics.subscriber import Subscriber
from workers.cli.app import answer_is_no
from workers.cli.database import reading
from workers.logic.variables import entries
from workers.logic.variables.state import ExecutionKey
from workers.settings import Settings
from workers.variables import history
from workers.variables.history import ExecutionSummary, StoreAt

_PAUSE_S = 0.1


def fork_event(
    source: ExecutionKey, name: str, summary: ExecutionSummary, store: StoreAt, variables: JsonObject
) -> Event:
    """Return the `execution.started` of `name`; what the store holds is taken over by the worker."""
    meta = cast("JsonObject", loads(store.entries.get(entries.META, b"{}")))
    system = cast("JsonObject", variables.get("system") or {})
    forked_from: JsonObject = {"execution_id": source.execution_id, "revision": store.revision}
    data: dict[str, JsonValue] = {
        "workflow": meta.get("workflow") or {"name": summary.workflow or "unknown"},
        "input": variables.get("input") or {},
        "system": {field: value for field, value in system.items() if field != "execution_id"},
        "forked_from": forked_from,
    }
    if "subjects" in meta:
        data["subjects"] = meta["subjects"]
    return Event(
        id=f"fork-{name}", source="/tally/cli", type="execution.started", subject=name, tenant=source.tenant, data=data
    )


async def publish_fork(settings: Settings, event: Event, timeout_s: float) -> None:
    """Publish the start and wait for the revision that it makes. Exit 1 when it makes none."""
    name = cast("str", event.subject)
    async with AsyncExitStack() as exits:
        letters = await exits.enter_async_context(Subscriber(settings.kafka(), [Topic.DEAD_LETTERS]))
        publisher = Publisher(settings.kafka(), "tally-fork")
        await publisher.start()
        exits.push_async_callback(publisher.stop)
        record = record_of(event)
        [((_, partition), offset)] = (await publisher.publish([record])).items()
        place = (record.topic.value, partition, offset)
        refused = asyncio.create_task(_letter_of(letters, place))
        taken = asyncio.create_task(_until_applied(settings, event))
        try:
            await asyncio.wait([refused, taken], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if refused.done():
                letter = refused.result()
                answer_is_no(f"{name} was not started: {letter.code}: {letter.message}")
            if not taken.done():
                answer_is_no(
                    f"{name} is published, but no worker took it within {timeout_s:g} s; do they run (`tally doctor`)?"
                )
            taken.result()
        finally:
            for task in (refused, taken):
                task.cancel()
            await asyncio.gather(refused, taken, return_exceptions=True)


async def _letter_of(letters: Subscriber, place: tuple[str, int, int]) -> DeadLettered:
    async for received in letters:
        if received.event is not None:
            letter = cast("DeadLettered", received.data)
            if (letter.topic, letter.partition, letter.offset) == place:
                return letter
    raise AssertionError("a subscription has no end")


async def _until_applied(settings: Settings, event: Event) -> None:
    """Wait for the revision of this very event: another start of the same name may be faster."""
    key, made_by = ExecutionKey(event.tenant, cast("str", event.subject)), key_of(event)
    while True:
        async with reading(settings) as connection:
            if await history.is_applied(connection, key, made_by):
                return
        await asyncio.sleep(_PAUSE_S)
