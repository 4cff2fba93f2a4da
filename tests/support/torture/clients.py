"""The load: racing clients, an engine, and people who send what is wrong, misplaced or twice; all of it is recorded."""

import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Self

from schemas.envelope import Event
from schemas.errors import DependencyDown
from schemas.exact_json import JsonObject
from tests.support.history import History
from tests.support.torture.parts import PARTITIONS
from tests.support.workload import RacingClient, run_script
from topics.catalog import Topic
from topics.codec import STRUCTURED_HEADERS, encode
from topics.connection import KafkaConnection
from topics.publisher import Publisher
from topics.records import Record
from topics.routing import record_of
from topics.subscriber import Subscriber

#: After so long a client goes on without its outcome; the checker asks for it at the end.
_PATIENCE_S = 60.0
_REMEMBERED = 3000


class Load:
    """Everything that is sent, for as long as the block lasts; `history` notes what must not be lost."""

    def __init__(self, connection: KafkaConnection, seed: int, *, clients: int, runs_per_s: float) -> None:
        self._connection = connection
        self._seed = seed
        self._clients = clients
        self._runs_per_s = runs_per_s
        self._publisher = Publisher(connection, "tally-torture")
        self._outcomes: dict[str, asyncio.Future[Event]] = {}
        #: Events that were answered or applied: their ids can be reused wrongly.
        self._settled: deque[Event] = deque(maxlen=_REMEMBERED)
        self._sent: deque[Event] = deque(maxlen=_REMEMBERED)
        self._runs: dict[str, Event] = {}
        #: Runs that were seen to have begun: others can be their children or forks.
        self._begun: deque[str] = deque(maxlen=20)
        self._tasks: list[asyncio.Task[None]] = []
        self._stop = asyncio.Event()
        self.history = History()
        self.counts: Counter[str] = Counter()
        self.unanswered = 0

    async def __aenter__(self) -> Self:
        await self._publisher.start()
        listening = asyncio.Event()
        self._listener = asyncio.create_task(self._listen(listening))
        await listening.wait()
        rates = Random(self._seed)
        work = [self._client(RacingClient(f"client-{n}", Random(rates.random()))) for n in range(self._clients)]
        work += [self._engine(Random(rates.random())), self._nuisance(Random(rates.random()))]
        self._tasks = [asyncio.create_task(each) for each in work]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.finish()
        self._listener.cancel()
        with suppress(asyncio.CancelledError):
            await self._listener
        await self._publisher.stop()

    async def finish(self) -> None:
        """Let everybody end what is under way, and send no more."""
        self._stop.set()
        await asyncio.gather(*self._tasks)

    async def publish(self, records: Sequence[Record], *, count: str) -> None:
        """Publish until Kafka has acknowledged; then none of it may be lost."""
        while True:
            with suppress(DependencyDown):
                await self._publisher.publish(records)
                break
            await asyncio.sleep(0.2)
        self.counts[count] += len(records)
        self.history.acknowledged.update((record.topic, record.value or b"") for record in records)

    async def _pause(self, seconds: float) -> bool:
        """Wait; False when it is time to end."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)
        return not self._stop.is_set()

    async def _client(self, client: RacingClient) -> None:
        while not self._stop.is_set():
            command = client.next_command()
            outcome = asyncio.get_running_loop().create_future()
            self._outcomes[command.id] = outcome
            await self.publish([record_of(command)], count=command.type)
            self._sent.append(command)
            try:
                client.take(await asyncio.wait_for(outcome, _PATIENCE_S))
            except TimeoutError:
                self.unanswered += 1
            else:
                self._settled.append(command)
            del self._outcomes[command.id]

    async def _engine(self, random: Random) -> None:
        while await self._pause(random.expovariate(self._runs_per_s)):
            events = run_script(f"run-{self.counts['runs']}", random, earlier=list(self._begun))
            by_type = random.random() < 0.3
            self._runs.update((event.id, event) for event in events)
            await self.publish([record_of(event, by_type=by_type) for event in events], count="events of runs")
            self._sent.extend(events)
            self.counts["runs"] += 1

    async def _nuisance(self, random: Random) -> None:
        """Send things twice, to the wrong partition, or wrong."""
        while await self._pause(random.expovariate(4)):
            choice = random.random()
            if choice < 0.6 and self._sent:
                event = random.choice(self._sent)
                await self.publish([record_of(event)], count="duplicates")
            elif choice < 0.8 and self._sent:
                record = record_of(random.choice(self._sent))
                place = random.randrange(PARTITIONS)
                misplaced = Record(record.topic, None, record.value, record.headers, place)
                await self.publish([misplaced], count="misplaced")
            else:
                await self._bad(random)

    async def _bad(self, random: Random) -> None:
        number = self.counts["bad"]
        topic = random.choice([Topic.MEMORY_COMMANDS, Topic.EXECUTION_EVENTS, Topic.ACTIVITY_OUTPUTS])
        key = f"bad-{number}"
        choice = random.randrange(5)
        if choice == 0 and self._settled:
            event = random.choice(self._settled)
            other = Event(
                id=event.id,
                source=event.source,
                type=event.type,
                subject=event.subject,
                replykey=event.replykey,
                tenant=event.tenant,
                data={**event.data, **_other_content(event, number)},
            )
            record = record_of(other)
            # A run's output may have gone to either topic; only the one of its first copy is ordered after that.
            topic, value, code = record.topic, encode(other), "id_reused"
            key = (record.key or b"").decode()
        elif choice == 4 and self._begun:
            run = random.choice(self._begun)
            again: JsonObject = {"workflow": {"name": "torture"}}
            start = Event(id=key, source="/nuisance", type="execution.started", subject=run, data=again)
            topic, key, value, code = Topic.EXECUTION_EVENTS, run, encode(start), "already_started"
        elif choice == 1:
            stranger = Event(id=key, source="/nuisance", type="memory.wriet", subject=key, data={})
            value, code = encode(stranger), "unknown_type"
        elif choice == 2:
            value, code = b'{"specversion": "1.0", "id": "%d"}' % number, "envelope_invalid"
        else:
            value, code = b"not json %d" % number, "malformed"
        self.history.bad[topic, value] = code
        await self.publish([Record(topic, key.encode(), value, STRUCTURED_HEADERS)], count="bad")

    async def _listen(self, listening: asyncio.Event) -> None:
        """Take every outcome, and see which events of runs were applied; through every outage."""
        topics = [Topic.MEMORY_RESULTS, Topic.VARIABLE_UPDATES]
        while True:
            with suppress(DependencyDown):
                async with Subscriber(self._connection, topics, start="beginning") as subscriber:
                    listening.set()
                    async for received in subscriber:
                        if received.event is not None:
                            self._note(received.event)
            await asyncio.sleep(0.5)

    def _note(self, event: Event) -> None:
        if event.type == "variables.revised":
            cause = event.data["cause"]
            applied = self._runs.pop(str(cause["id"]), None) if isinstance(cause, dict) else None
            if applied is not None and applied.type == "execution.started":
                self._settled.append(applied)
                self._begun.append(str(applied.subject))
            return
        waiting = self._outcomes.get(str(event.data.get("command_id")))
        if waiting is not None and not waiting.done():
            waiting.set_result(event)


def _other_content(event: Event, number: int) -> JsonObject:
    """Return fields that make the content another one and keep it valid."""
    match event.type:
        case "execution.started":
            return {"event": number}
        case "conversation.add":
            return {"content": f"a thief says {number}"}
        case "conversation.delete":
            return {"id": f"stolen-{number}"}
        case "conversation.get" | "conversation.get_all":
            return {"limit": 1000 + number}
        case _:
            return {"writer": {"node_id": f"thief-{number}"}}
