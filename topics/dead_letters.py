"""What could not be accepted: original bytes and headers, where it lay, and why."""

import base64
from uuid import NAMESPACE_URL, uuid5

from schemas.envelope import Event
from schemas.exact_json import JsonObject
from topics.catalog import Topic
from topics.codec import STRUCTURED_HEADERS, encode
from topics.records import ReceivedRecord, Record

#: An oversized original is cut so that its letter fits into a record itself.
MAX_ORIGINAL_BYTES = 2 * 1024 * 1024


def dead_letter(record: ReceivedRecord, code: str, message: str, worker: str) -> Record:
    """Build the dead letter of `record`. Its id depends on where the record lies, so every delivery gives the same."""
    original = record.value
    data: JsonObject = {
        "code": code,
        "message": message,
        "worker": worker,
        "topic": record.topic.value,
        "partition": record.partition,
        "offset": record.offset,
        "key_base64": _base64(record.key),
        "value_base64": _base64(None if original is None else original[:MAX_ORIGINAL_BYTES]),
        "value_bytes": None if original is None else len(original),
        "headers": [[name, _base64(value)] for name, value in record.headers],
    }
    place = f"{record.topic.value}/{record.partition}/{record.offset}/{record.timestamp_ms}"
    event = Event(
        id=str(uuid5(NAMESPACE_URL, f"tallystick:dead-letter:{place}")),
        source=f"/tallystick/{worker}",
        type="record.dead_lettered",
        data=data,
    )
    return Record(Topic.DEAD_LETTERS, record.key, encode(event), STRUCTURED_HEADERS)


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def original_of(letter: Event, topic: Topic) -> Record:
    """Rebuild the record that a dead letter holds, for `tally dead-letters replay`."""
    data = letter.data
    headers = data["headers"]
    assert isinstance(headers, list)
    return Record(
        topic,
        _unbase64(data["key_base64"]),
        _unbase64(data["value_base64"]),
        [(str(pair[0]), _unbase64(pair[1]) or b"") for pair in headers if isinstance(pair, list)],
    )


def _unbase64(text: object) -> bytes | None:
    return None if text is None else base64.b64decode(str(text))
