"""What the columns `changes` and `outgoing` of a revision hold: JSON in which stored values stay bytes."""

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import cast

from schemas.exact_json import MAX_NESTING, JsonObject, JsonValue, Raw, dumps, loads
from topics.catalog import Topic
from topics.codec import STRUCTURED_HEADERS
from topics.records import Record
from workers.logic.variables.step import Outgoing

#: A column wraps what an event of 64 levels may hold.
_MAX_NESTING = MAX_NESTING + 8


def encode_changes(changes: Mapping[str, bytes | None]) -> bytes:
    """Write `[["entry", value], ["deleted entry"], ...]`."""
    return dumps([[entry] if value is None else [entry, Raw(value)] for entry, value in changes.items()])


def decode_changes(changes: bytes) -> Iterable[tuple[str, bytes | None]]:
    """Read what `encode_changes` wrote."""
    for change in cast("list[list[JsonValue]]", loads(changes, _MAX_NESTING)):
        yield cast("str", change[0]), dumps(change[1]) if len(change) > 1 else None


def apply_changes(entries: MutableMapping[str, bytes], changes: Iterable[tuple[str, bytes | None]]) -> None:
    """Change `entries` as one revision did."""
    for entry, value in changes:
        if value is None:
            entries.pop(entry, None)
        else:
            entries[entry] = value


def records_of(outgoing: Iterable[Outgoing]) -> list[Record]:
    """Return the records that a revision brought about, in their order."""
    return [Record(out.topic, out.key.encode(), out.value, STRUCTURED_HEADERS) for out in outgoing]


def encode_outgoing(records: Sequence[Record]) -> bytes:
    """Write `[{"topic", "key", "event"}, ...]`."""
    if not records:
        return b"[]"  # most often
    return dumps(
        [
            {"topic": record.topic.value, "key": (record.key or b"").decode(), "event": Raw(record.value or b"null")}
            for record in records
        ]
    )


def decode_outgoing(outgoing: bytes) -> list[Record]:
    """Read what `encode_outgoing` wrote: the same bytes under the same keys."""
    return [
        Record(Topic(str(out["topic"])), str(out["key"]).encode(), dumps(out["event"]), STRUCTURED_HEADERS)
        for out in cast("list[JsonObject]", loads(outgoing, _MAX_NESTING))
    ]
