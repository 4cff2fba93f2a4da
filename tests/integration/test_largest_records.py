"""No record is large enough to hold its partition up: what a broker takes, the workers take or refuse."""

from schemas.envelope import Event
from schemas.exact_json import JsonObject
from schemas.limits import DEFAULT_LIMITS
from tests.support.edge import PARTITIONS, Edge, started
from tests.support.memory import memory_on
from topics.catalog import Topic
from topics.codec import encode
from topics.keys import partition_of
from topics.records import Headers, Record

HALF = b"x" * (DEFAULT_LIMITS.record_bytes // 2 - 10_000)
#: As malformed as they are large: in value and headers, in headers of many, in the key.
HUGE: tuple[tuple[bytes, bytes, Headers], ...] = (
    (b"k", HALF, (("trace", HALF),)),
    (b"k", b"{", tuple((f"header-{number}", b"x" * 1000) for number in range(3900))),
    (HALF, HALF, ()),
)


def said(name: str, event_type: str, data: JsonObject) -> Event:
    return Event(id=name, source="/test", type=event_type, subject="run", data=data)


async def test_variable_worker_takes_or_refuses_the_largest_records(variables: Edge) -> None:
    text = "x" * (DEFAULT_LIMITS.record_bytes - 400)
    begun = said("1", "execution.started", {"workflow": {"name": "w"}, "input": {"text": text}})
    # A variable may be as large as any resolved value, 1 MiB; an input may fill its record.
    beyond = said("beyond", "variables.set", {"variables": {"beyond": text}})
    wrong = (partition_of(b"run", PARTITIONS) + 1) % PARTITIONS
    misplaced = said("moved", "variables.set", {"variables": {"moved": 1}})
    await variables.publisher.publish(
        [
            *(Record(Topic.EXECUTION_EVENTS, key, value, headers) for key, value, headers in HUGE),
            Record(Topic.EXECUTION_EVENTS, b"run", encode(begun)),
            Record(Topic.EXECUTION_EVENTS, b"run", encode(beyond)),
            Record(Topic.EXECUTION_EVENTS, b"run", encode(misplaced), HUGE[1][2], partition=wrong),
        ]
    )
    await variables.start_worker()
    await variables.publish([started("next")])
    await variables.drained()

    letters = [record.event.data for record in await variables.read(Topic.DEAD_LETTERS)]
    assert sorted(str(letter["code"]) for letter in letters) == ["malformed"] * len(HUGE) + ["result_too_large"]
    store = await variables.store("run")
    assert store is not None
    assert store.entries["v/moved"] == b"1"
    assert await variables.store("next") is not None


async def test_memory_worker_refuses_the_largest_records(
    kafka_bootstrap_servers: str, database: str, topic_prefix: str
) -> None:
    item: JsonObject = {"scope": "shared", "subject": {"kind": "case", "id": "c"}, "key": "k", "type": "String"}
    command = Event(id="last", source="/test", type="memory.read", data=item)
    async with memory_on(kafka_bootstrap_servers, database, topic_prefix) as memory:
        await memory.publisher.publish(
            Record(Topic.MEMORY_COMMANDS, key, value, headers, 0) for key, value, headers in HUGE
        )
        await memory.start_worker()

        (outcome,) = await memory.ask(command)

        assert outcome.type == "memory.missing"
        codes = [event.data["code"] for event in await memory.events(Topic.DEAD_LETTERS)]
        assert codes == ["malformed"] * len(HUGE)
