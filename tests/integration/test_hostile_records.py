"""No record stops its partition, crashes a worker or outgrows what a broker takes, whatever is in it."""

from schemas.envelope import Event
from schemas.exact_json import JsonObject
from tests.support.edge import PARTITIONS, Edge, started
from tests.support.memory import memory_on
from tests.support.raw_records import publish_with_a_spoiled_header
from topics.catalog import Topic
from topics.codec import encode
from topics.keys import partition_of
from topics.records import Headers, Record

#: Four million characters that a message writes as four each.
DELETED = "\x7f" * 3_900_000
#: No quote closes the text, and each of its two million could open one.
UNCLOSED = b'{"a":"' + b'\\"' * 2_000_000
NO_VALUE: Headers = (("ce_specversion", b"1.0"), ("ce_id", None))  # type: ignore[assignment] # Kafka allows it


def said(run: str, name: str, event_type: str, data: JsonObject) -> Event:
    return Event(id=f"{run}/{name}", source="/test", type=event_type, subject=run, data=data)


async def test_variable_worker_goes_on_after_hostile_records(variables: Edge) -> None:
    half: JsonObject = {"activity_id": "big", "output": {"v": "y" * 500_000}}
    loops: list[JsonObject] = [{"node_id": "n" * 250, "index": index} for index in range(13_000)]
    deep = "{{" + ".".join(["a"] * 200_000) + "}}"
    item: JsonObject = {"scope": "workflow", "subject": {"kind": "p", "id": "1"}, "type": "String"}
    events = [
        said("nul", "1", "execution.started", {"workflow": {"name": "a\x00b"}}),
        said(
            "nul-parent",
            "1",
            "execution.started",
            {"workflow": {"name": "a"}, "parent": {"execution_id": "\x00", "node_id": "n"}},
        ),
        said(
            "nul-fork",
            "1",
            "execution.started",
            {"workflow": {"name": "a"}, "forked_from": {"execution_id": "\x00", "revision": 1}},
        ),
        started("reason"),
        said("reason", "2", "activity.completed", half),
        said("reason", "3", "execution.cancelled", {"reason": "x" * 3_900_000}),
        started("child"),
        said("child", "2", "activity.completed", half),
        said(
            "child",
            "3",
            "activity.scheduled",
            {"activity_id": "b", "inputs": {"a": "{{big.v}}", "b": "{{big.v}}"}, "child_execution_id": "x" * 3_900_000},
        ),
        said(
            "parent",
            "1",
            "execution.started",
            {"workflow": {"name": "w"}, "parent": {"execution_id": "x" * 3_900_000, "node_id": "n"}},
        ),
        started("loops"),
        said("loops", "2", "activity.scheduled", {"activity_id": "b", "inputs": {"a": "{{q}}"}, "iteration": loops}),  # type: ignore[dict-item]
        started("deep"),
        said("deep", "2", "activity.scheduled", {"activity_id": "b", "inputs": {"a": deep}}),
        said("deep", "3", "memory.read", {**item, "node_id": "r", "key": DELETED}),
        said("simulated", "1", "execution.started", {"workflow": {"name": "w"}, "simulation": True}),
        *(
            said(
                "simulated",
                f"w{number}",
                "memory.write",
                {**item, "node_id": f"w{number}", "key": f"k{number}", "value": "v" * 250_000},
            )
            for number in range(20)
        ),
        said("simulated", "end", "execution.completed", {}),
    ]
    await variables.publisher.publish(
        [
            Record(Topic.EXECUTION_EVENTS, b"nul", UNCLOSED),
            Record(Topic.EXECUTION_EVENTS, b"nul", b"{}", NO_VALUE),
            *(Record(Topic.EXECUTION_EVENTS, str(event.subject).encode(), encode(event)) for event in events),
        ]
    )
    await variables.start_worker()
    await variables.publish([started("next")])
    await variables.drained()

    codes = sorted(str(record.event.data["code"]) for record in await variables.read(Topic.DEAD_LETTERS))
    assert codes == ["data_invalid"] * 6 + ["envelope_invalid", "malformed", "result_too_large"]
    assert await variables.store("next") is not None
    updates = [record.event for record in await variables.read(Topic.VARIABLE_UPDATES)]
    (final,) = [event for event in updates if event.type == "execution.finalized"]
    assert (final.subject, "effects" in final.data) == ("simulated", False)
    assert int(str(final.data["effects_bytes"])) > 20 * 250_000


async def test_memory_worker_goes_on_after_hostile_records(
    kafka_bootstrap_servers: str, database: str, topic_prefix: str
) -> None:
    item: JsonObject = {"scope": "shared", "subject": {"kind": "case", "id": "c"}, "key": "k", "type": "Json"}

    def write(name: str, **data: object) -> Event:
        return Event(id=name, source="/test", type="memory.write", replykey="r", data={**item, **data})  # type: ignore[dict-item]

    def wide(value: int) -> JsonObject:
        return {"k" * 100_000: {str(number): value for number in range(5000)}}

    hostile = [
        write("key", key=DELETED, value=1),
        write("workflow", workflow=DELETED, value=1),
        write("quantity", type="Quantity", value={"value": DELETED}),
        write("list", type="String" + "[]" * 1_900_000, value=1),
        write("writer", value=1, writer={"user_id": "u" * 3_900_000}),
        write("base", value=wide(0)),
        write("current", value=wide(1), expected_version=1),
        write("attempted", value=wide(2), expected_version=1),
    ]
    async with memory_on(kafka_bootstrap_servers, database, topic_prefix) as memory:
        await memory.publisher.publish(
            [
                Record(Topic.MEMORY_COMMANDS, None, UNCLOSED, (), 0),
                Record(Topic.MEMORY_COMMANDS, None, b"{}", NO_VALUE, 0),
                *(Record(Topic.MEMORY_COMMANDS, None, encode(event), (), 0) for event in hostile),
            ]
        )
        await memory.start_worker()

        (outcome,) = await memory.ask(Event(id="last", source="/test", type="memory.read", data=item))

        assert outcome.data["version"] == 2
        assert len(await memory.events(Topic.DEAD_LETTERS)) == 2
        outcomes = await memory.outcomes([event.id for event in hostile])
        assert [outcomes[event.id].type for event in hostile] == [
            *["memory.rejected"] * 5,
            *["memory.written"] * 2,
            "memory.conflicted",
        ]
        (conflict,) = await memory.events(Topic.MEMORY_CONFLICTS)
        assert (conflict.data["mergeable"], conflict.data["overlapping_paths"]) == (False, [])


async def test_a_header_name_that_is_no_text_stops_nobody(variables: Edge, database: str, topic_prefix: str) -> None:
    """aiokafka raises at it, at every delivery; the event itself is good."""
    settings, run = variables.settings, started("run")
    partition = partition_of(b"run", PARTITIONS)
    await publish_with_a_spoiled_header(settings.kafka(), Topic.EXECUTION_EVENTS, partition, b"run", encode(run))
    await variables.start_worker()
    await variables.publish([said("run", "2", "variables.set", {"variables": {"x": 1}})])
    await variables.drained()

    store = await variables.store("run")
    assert store is not None
    assert store.entries["v/x"] == b"1"

    item: JsonObject = {"scope": "shared", "subject": {"kind": "case", "id": "c"}, "key": "k", "type": "Json"}
    write = Event(id="write", source="/test", type="memory.write", data={**item, "value": 1})
    async with memory_on(settings.kafka_bootstrap_servers, database, f"{topic_prefix}memory.") as memory:
        await publish_with_a_spoiled_header(memory.connection, Topic.MEMORY_COMMANDS, 0, b"k", encode(write))
        await memory.start_worker()
        (found,) = await memory.ask(Event(id="read", source="/test", type="memory.read", data=item))
        assert (found.type, found.data["version"]) == ("memory.found", 1)
