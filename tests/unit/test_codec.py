"""CloudEvents over Kafka: structured and binary mode are read, structured mode is written."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.envelope import Event
from schemas.errors import Rejection
from schemas.exact_json import dumps
from schemas.limits import DEFAULT_LIMITS
from tests.support.json_values import json_objects, json_values, texts
from topics.catalog import Topic
from topics.codec import any_event, decode, encode, object_of, plain_event
from topics.dead_letters import MAX_ORIGINAL_BYTES, dead_letter, first_letter_of, original_of
from topics.records import ReceivedRecord

ATTRIBUTES = {"specversion": "1.0", "id": "1", "source": "/s", "type": "variables.set"}
WHOLE = Event(
    id="1",
    source="/s",
    type="variables.set",
    subject="run-1",
    tenant="north",
    time="2026-03-02T08:15:00Z",
    replykey="r",
    traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    data={"variables": {"n": 1}},
)


def refusal(value: bytes | None, headers: list[tuple[str, bytes]] | None = None) -> Rejection:
    with pytest.raises(Rejection) as refused:
        decode(value, headers or ())
    return refused.value


def test_an_event_is_read_back_as_it_was_written() -> None:
    assert decode(encode(WHOLE)) == WHOLE


def test_absent_attributes_are_left_out() -> None:
    bare = Event(id="1", source="/s", type="variables.set")

    assert (
        encode(bare)
        == b'{"specversion":"1.0","id":"1","source":"/s","type":"variables.set","datacontenttype":"application/json","data":{}}'
    )


def test_binary_mode_says_the_same() -> None:
    headers = [
        ("ce_specversion", b"1.0"),
        ("ce_id", b"1"),
        ("ce_source", b"/s"),
        ("CE_Type", b"variables.set"),
        ("ce_subject", b"run-1"),
        ("ce_tenant", b"north"),
        ("content-type", b"application/json"),
    ]

    event = decode(b'{"variables":{"n":1}}', headers)

    assert (event.id, event.type, event.subject, event.tenant) == ("1", "variables.set", "run-1", "north")
    assert event.data == {"variables": {"n": 1}}


def test_the_data_of_binary_mode_may_hold_a_specversion_of_its_own_only_in_structured_mode() -> None:
    """A structured value wins over ce_ headers, as the value says what it is."""
    structured = dumps({**ATTRIBUTES, "data": {"variables": {}}})

    assert decode(structured, [("ce_specversion", b"1.0"), ("ce_id", b"other")]).id == "1"


@pytest.mark.parametrize("data", [{}, {"data": None}])
def test_absent_data_is_an_empty_object(data: dict[str, object]) -> None:
    assert decode(dumps({**ATTRIBUTES, **data})).data == {}


def test_unknown_attributes_are_ignored() -> None:
    assert decode(dumps({**ATTRIBUTES, "partitionkey": "x"})).id == "1"


@pytest.mark.parametrize(
    ("value", "code", "words"),
    [
        (None, "malformed", "no value"),
        (b"{", "malformed", "not valid JSON"),
        (b"[]", "malformed", "list"),
        (b"{}", "envelope_invalid", "specversion"),
        (b"x" * (4 * 1024 * 1024 + 1), "too_large", "4194304"),
        (b"[" * 65 + b"]" * 65, "too_deep", "64"),
        (dumps({**ATTRIBUTES, "specversion": "0.3"}), "envelope_invalid", "'0.3'"),
        (dumps({**ATTRIBUTES, "id": ""}), "envelope_invalid", "id"),
        (dumps({**ATTRIBUTES, "id": 7}), "envelope_invalid", "id"),
        (dumps({**ATTRIBUTES, "id": "x" * 1025}), "envelope_invalid", "1024"),
        (dumps({**ATTRIBUTES, "subject": "a\x00"}), "envelope_invalid", "NUL"),
        (dumps({"specversion": "1.0", "id": "1", "type": "t"}), "envelope_invalid", "source is missing"),
        (dumps({**ATTRIBUTES, "data": [1]}), "data_invalid", "list"),
    ],
)
def test_what_is_no_event_is_refused_with_a_code(value: bytes | None, code: str, words: str) -> None:
    refused = refusal(value)

    assert refused.reason == code
    assert words in refused.message


#: Attributes as they should be, and as they should not.
_attributes = st.fixed_dictionaries(
    {"specversion": st.just("1.0"), "id": st.just("1"), "source": st.just("/s"), "type": st.just("t")},
    optional={
        "data": json_objects,
        **dict.fromkeys(("subject", "tenant", "time", "replykey", "traceparent"), st.none() | texts),
        **dict.fromkeys(("datacontenttype", "dataschema", "partitionkey"), json_values),
    },
)
_faults = st.dictionaries(st.sampled_from([*ATTRIBUTES, "data", "subject", "tenant"]), json_values, max_size=1)


@given(_attributes, _faults)
def test_what_is_read_at_once_is_what_is_read_step_by_step(
    attributes: dict[str, object], faults: dict[str, object]
) -> None:
    value = dumps({**attributes, **faults})

    assert plain_event(value) in (None, _event_or_none(value))


@given(_attributes, st.data())
def test_broken_bytes_are_never_read_at_once(attributes: dict[str, object], data: st.DataObject) -> None:
    value = bytearray(dumps(attributes))
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))

    assert plain_event(bytes(value)) in (None, _event_or_none(bytes(value)))


def _event_or_none(value: bytes) -> Event | None:
    try:
        return any_event(value, ())
    except Rejection:
        return None


def test_most_events_are_read_at_once() -> None:
    assert plain_event(encode(WHOLE)) == WHOLE


@pytest.mark.parametrize(
    "unusual",
    [
        {"partitionkey": "x"},
        {"data": None},
        {"data": {"n": 12345678901234567890}},
        {"data": {"n": Decimal("-0")}},
        {"subject": "a\x00"},
        {"tenant": None},
    ],
)
def test_what_is_unusual_is_read_step_by_step(unusual: dict[str, object]) -> None:
    assert plain_event(dumps({**ATTRIBUTES, "data": {}, **unusual})) is None


def test_an_attribute_that_nobody_reads_must_be_a_text_too() -> None:
    """The decoder skips over what it does not know, whatever bytes are in it."""
    value = dumps({**ATTRIBUTES, "data": {}, "other": "?"}).replace(b"?", b"\xff")

    assert refusal(value).reason == "malformed"


def test_a_header_that_is_no_text_is_refused() -> None:
    assert refusal(b"{}", [("ce_specversion", b"1.0"), ("ce_id", b"\xff")]).reason == "malformed"


def test_our_own_objects_are_read() -> None:
    assert object_of(b'{"a":1}') == {"a": 1}


def received(value: bytes | None, key: bytes | None = b"k") -> ReceivedRecord:
    return ReceivedRecord(Topic.MEMORY_COMMANDS, 3, 17, key, value, [("trace", b"\xff")], 1_000)


@pytest.mark.parametrize(("value", "key"), [(b"\xff\x00{", b"k"), (None, None), (b"{}", b"")])
def test_a_dead_letter_gives_the_original_back_byte_by_byte(value: bytes | None, key: bytes | None) -> None:
    letter = dead_letter(received(value, key), "malformed", "no", "memory")

    original = original_of(decode(letter.value), Topic.MEMORY_COMMANDS)

    assert (original.key, original.value, original.headers[:-1]) == (key, value, [("trace", b"\xff")])
    assert letter.topic is Topic.DEAD_LETTERS


def test_a_replay_that_is_refused_again_and_again_names_the_first_letter() -> None:
    first = second = decode(dead_letter(received(b"{}"), "malformed", "no", "memory").value)
    for offset in (18, 19):
        replayed = original_of(second, Topic.MEMORY_COMMANDS)
        record = replace(received(b"{}"), offset=offset, headers=replayed.headers)
        second = decode(dead_letter(record, "malformed", "no", "memory").value)

    assert first_letter_of(first) is None
    assert first_letter_of(second) == first.id
    assert record.headers == [("trace", b"\xff"), ("tally-replay-of", first.id.encode())]


def test_every_delivery_of_a_record_gives_the_same_letter() -> None:
    first = dead_letter(received(b"x"), "malformed", "no", "memory")
    again = dead_letter(received(b"x"), "malformed", "no", "memory")

    assert decode(first.value).id == decode(again.value).id


def test_an_oversized_original_is_cut_and_says_its_size() -> None:
    letter = decode(dead_letter(received(b"x" * (MAX_ORIGINAL_BYTES + 1)), "too_large", "no", "memory").value)

    assert letter.data["value_bytes"] == MAX_ORIGINAL_BYTES + 1
    assert letter.data["truncated"] is True
    assert len(original_of(letter, Topic.MEMORY_COMMANDS).value or b"") == MAX_ORIGINAL_BYTES


@pytest.mark.parametrize("share", ["value", "key", "headers", "header names"])
def test_a_letter_fits_into_a_record_wherever_the_original_is_large(share: str) -> None:
    """A letter that no topic takes would hold its partition up for ever."""
    large = b"x" * (DEFAULT_LIMITS.record_bytes - 100)
    headers = {"headers": [("trace", large)], "header names": [("n" * 1000, b"")] * 4000}.get(share, [])
    record = replace(received(large if share == "value" else b"{", large if share == "key" else b"k"), headers=headers)

    letter = dead_letter(record, "malformed", "no", "memory")

    assert len(letter.value or b"") + len(letter.key or b"") <= DEFAULT_LIMITS.record_bytes
    assert decode(letter.value).data["truncated"] is True


def test_a_header_without_a_value_is_an_attribute_that_is_not_there() -> None:
    headers: list = [("ce_specversion", b"1.0"), ("ce_id", None), ("ce_source", b"/s"), ("ce_type", b"t")]

    assert refusal(b"{}", headers).reason == "envelope_invalid"
    assert refusal(b"{}", [("ce_specversion", None)]).reason == "envelope_invalid"  # type: ignore[list-item]


def test_the_letter_of_headers_with_names_of_escapes_fits_into_a_record() -> None:
    headers = tuple(("\x01" * 1000, b"") for _ in range(250))

    letter = dead_letter(ReceivedRecord(Topic.MEMORY_COMMANDS, 0, 0, None, b"", headers), "malformed", "m", "memory")

    assert letter.value is not None
    assert len(letter.value) < 512 * 1024
