"""The CloudEvents 1.0 envelope that everything travels in."""

from msgspec import Struct, field

from schemas.exact_json import JsonObject

DEFAULT_TENANT = "default"
SPEC_VERSION = "1.0"


class Event(Struct, frozen=True, kw_only=True):
    """One event. `id`, `source` and `tenant` identify it; `subject` is the execution id.

    `time` is RFC 3339 and informative only: order, expiry and retention never use it.
    """

    id: str
    source: str
    type: str
    subject: str | None = None
    tenant: str = DEFAULT_TENANT
    time: str | None = None
    replykey: str | None = None
    traceparent: str | None = None
    data: JsonObject = field(default_factory=dict)
