"""CloudEvents 1.0 over Kafka: structured JSON is what we write; structured and binary are what we read.

A value with `specversion` is structured even where the content-type header is missing, so that a plain
`kcat` line works (CloudEvents Kafka protocol binding 1.0.2, section 3).
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, MsgspecError, Struct

from schemas.envelope import DEFAULT_TENANT, SPEC_VERSION, Event
from schemas.errors import Rejection
from schemas.exact_json import InvalidJson, JsonObject, decoder_of, dumps, is_plain, loads
from schemas.limits import DEFAULT_LIMITS
from topics.records import Headers

CONTENT_TYPE = "application/cloudevents+json; charset=UTF-8"
STRUCTURED_HEADERS: Headers = (("content-type", CONTENT_TYPE.encode()),)
_TEXT_ATTRIBUTES = ("id", "source", "type", "subject", "tenant", "time", "replykey", "traceparent")
_REQUIRED = ("id", "source", "type")
_MAX_ATTRIBUTE_CHARACTERS = 1024
_Attribute = Annotated[str, Meta(min_length=1, max_length=_MAX_ATTRIBUTE_CHARACTERS)]


class _Structured(Struct, forbid_unknown_fields=True):
    """An event as nearly all come: structured JSON without a fault. Any other is read step by step.

    That includes attributes that are not named here: what this decoder skips, it does not look into.
    """

    specversion: Literal["1.0"]
    id: _Attribute
    source: _Attribute
    type: _Attribute
    data: dict[str, Any]
    subject: _Attribute | None = None
    tenant: _Attribute = DEFAULT_TENANT
    time: _Attribute | None = None
    replykey: _Attribute | None = None
    traceparent: _Attribute | None = None
    datacontenttype: object = None
    dataschema: object = None


_structured = decoder_of(_Structured)


def decode(value: bytes | None, headers: Headers = ()) -> Event:
    """Read one record. Raises `Rejection`: `malformed`, `too_deep`, `too_large`, `envelope_invalid`."""
    if value is None:
        raise Rejection("malformed", "the record has no value; publish a CloudEvent")
    if len(value) > DEFAULT_LIMITS.record_bytes:
        raise Rejection(
            "too_large",
            f"the record has {len(value)} bytes, {DEFAULT_LIMITS.record_bytes} are allowed; store a reference",
        )
    return plain_event(value) or any_event(value, headers)


def plain_event(value: bytes) -> Event | None:
    """Read an event that is plain in every way at once; None for any other."""
    # A NUL, which PostgreSQL refuses in a text, is an escape in JSON.
    if b"\\u0000" in value or not is_plain(value):
        return None
    try:
        found = _structured.decode(value)
    except MsgspecError:
        return None
    return Event(
        id=found.id,
        source=found.source,
        type=found.type,
        subject=found.subject,
        tenant=found.tenant,
        time=found.time,
        replykey=found.replykey,
        traceparent=found.traceparent,
        data=found.data,
    )


def any_event(value: bytes, headers: Headers) -> Event:
    """Read an event step by step, or say what is wrong. Raises as `decode` does."""
    parsed = _parse(value)
    if isinstance(parsed, dict) and "specversion" in parsed:
        return _event(parsed, parsed.get("data"))
    # Kafka's headers may lack their value, whatever the types say: such an attribute is not there.
    binary = {name[3:].lower(): text for name, text in headers if name[:3].lower() == "ce_" and text is not None}
    if "specversion" in binary:
        return _event(_binary_attributes(binary), parsed)
    if not isinstance(parsed, dict):
        raise Rejection("malformed", f"the value is a JSON {type(parsed).__name__}, not a CloudEvent object")
    raise Rejection("envelope_invalid", "the value has no specversion and the record no ce_ headers; add one of them")


def _parse(value: bytes) -> Any:
    try:
        return loads(value)
    except InvalidJson as error:
        raise Rejection(error.code, str(error)) from error


def _binary_attributes(binary: Mapping[str, bytes]) -> Mapping[str, Any]:
    try:
        return {name: text.decode() for name, text in binary.items()}
    except UnicodeDecodeError as error:
        raise Rejection("malformed", f"a ce_ header is not UTF-8: {error}") from error


def _event(attributes: Mapping[str, Any], data: Any) -> Event:
    if attributes.get("specversion") != SPEC_VERSION:
        raise Rejection(
            "envelope_invalid",
            f"specversion is {attributes.get('specversion')!r}; this reads {SPEC_VERSION!r}",
        )
    found: dict[str, str] = {}
    for name in _TEXT_ATTRIBUTES:
        text = attributes.get(name)
        if text is not None:
            # PostgreSQL keeps identities as text, which cannot hold NUL.
            if not isinstance(text, str) or not 0 < len(text) <= _MAX_ATTRIBUTE_CHARACTERS or "\x00" in text:
                raise _unfit(name, text)
            found[name] = text
    if "id" not in found or "source" not in found or "type" not in found:
        name = next(name for name in _REQUIRED if name not in found)
        raise Rejection("envelope_invalid", f"the attribute {name} is missing; CloudEvents require it")
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise Rejection("data_invalid", f"data is a JSON {type(data).__name__}; every type here takes an object")
    return Event(**found, data=data)


def _unfit(name: str, text: object) -> Rejection:
    if isinstance(text, str) and "\x00" in text and len(text) <= _MAX_ATTRIBUTE_CHARACTERS:
        return Rejection("envelope_invalid", f"the attribute {name} holds a NUL character")
    return Rejection(
        "envelope_invalid", f"the attribute {name} must be a text of 1 to {_MAX_ATTRIBUTE_CHARACTERS} characters"
    )


def encode(event: Event) -> bytes:
    """Write the structured JSON form, absent attributes left out."""
    body: dict[str, object] = {
        "specversion": SPEC_VERSION,
        "id": event.id,
        "source": event.source,
        "type": event.type,
    }
    if event.subject is not None:
        body["subject"] = event.subject
    if event.time is not None:
        body["time"] = event.time
    if event.tenant != DEFAULT_TENANT:
        body["tenant"] = event.tenant
    if event.replykey is not None:
        body["replykey"] = event.replykey
    if event.traceparent is not None:
        body["traceparent"] = event.traceparent
    body["datacontenttype"] = "application/json"
    body["data"] = event.data
    return dumps(body)


def object_of(value: bytes) -> JsonObject:
    """Parse bytes of our own that hold an object."""
    parsed = loads(value)
    assert isinstance(parsed, dict), "stored objects are written by this project only"
    return parsed
