"""What could not be accepted: original bytes and headers, where it lay, and why."""

import base64
from collections.abc import Iterator
from uuid import NAMESPACE_URL, uuid5

from schemas.envelope import Event
from schemas.exact_json import JsonObject, dumps
from topics.catalog import Topic
from topics.codec import STRUCTURED_HEADERS, encode
from topics.records import Headers, ReceivedRecord, Record

#: The header of a record that was published again: the id of the dead letter that it was first.
REPLAY_OF = "tally-replay-of"
#: Oversized originals are cut, so that their letters fit into a record: value, key, and headers in all.
MAX_ORIGINAL_BYTES = 2 * 1024 * 1024
_MAX_KEY_BYTES = 64 * 1024
_MAX_HEADERS_BYTES = 256 * 1024


def dead_letter(record: ReceivedRecord, code: str, message: str, worker: str) -> Record:
    """Build the dead letter of `record`. Its id depends on where the record lies, so every delivery gives the same."""
    original = record.value
    key = None if record.key is None else record.key[:_MAX_KEY_BYTES]
    headers = list(_within_limit(record.headers))
    data: JsonObject = {
        "code": code,
        "message": message,
        "worker": worker,
        "topic": record.topic.value,
        "partition": record.partition,
        "offset": record.offset,
        "key_base64": _base64(key),
        "value_base64": _base64(None if original is None else original[:MAX_ORIGINAL_BYTES]),
        "value_bytes": None if original is None else len(original),
        "headers": [[name, _base64(value)] for name, value in headers],
    }
    if len(headers) < len(record.headers) or key != record.key or len(original or b"") > MAX_ORIGINAL_BYTES:
        data["truncated"] = True
    place = f"{record.topic.value}/{record.partition}/{record.offset}/{record.timestamp_ms}"
    event = Event(
        id=str(uuid5(NAMESPACE_URL, f"tallystick:dead-letter:{place}")),
        source=f"/tallystick/{worker}",
        type="record.dead_lettered",
        data=data,
    )
    return Record(Topic.DEAD_LETTERS, key, encode(event), STRUCTURED_HEADERS)


def _within_limit(headers: Headers) -> Iterator[tuple[str, bytes]]:
    """Yield the first headers that fit; one without a value counts too."""
    total = 0
    for name, value in headers:
        total += len(dumps(name)) + len(value or b"")
        if total > _MAX_HEADERS_BYTES:
            return
        yield name, value


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def original_of(letter: Event, topic: Topic) -> Record:
    """Rebuild the record that a dead letter holds, for `tally dead-letters replay`; a header tells that it is none new.

    Refused again, it is another letter, which names the first one.
    """
    data = letter.data
    stored = data["headers"]
    assert isinstance(stored, list)
    headers = [(str(pair[0]), _unbase64(pair[1]) or b"") for pair in stored if isinstance(pair, list)]
    if first_letter_of(letter) is None:
        headers.append((REPLAY_OF, letter.id.encode()))
    return Record(topic, _unbase64(data["key_base64"]), _unbase64(data["value_base64"]), headers)


def first_letter_of(letter: Event) -> str | None:
    """Return the id of the dead letter whose original was published again and came to this one; None if it was not."""
    headers = letter.data["headers"]
    assert isinstance(headers, list)
    found = (_unbase64(pair[1]) or b"" for pair in headers if isinstance(pair, list) and pair[0] == REPLAY_OF)
    first = next(found, None)
    return None if first is None else first.decode(errors="replace")


def _unbase64(text: object) -> bytes | None:
    return None if text is None else base64.b64decode(str(text))
