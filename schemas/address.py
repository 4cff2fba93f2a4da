"""Canonical addresses of memory items: `tenant/scope/workflow/kind/id/key`.

Each segment is percent-encoded (RFC 3986: unreserved characters stay); `-` alone stands for an absent
segment, a literal `-` is `%2D`. The text is the Kafka key and the primary key in PostgreSQL.
"""

import re
from typing import Literal
from urllib.parse import quote, unquote

from msgspec import Struct

from schemas.errors import Rejection
from schemas.limits import DEFAULT_LIMITS

Scope = Literal["workflow", "shared"]
_SEGMENTS = 6
_ABSENT = "-"
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")
#: An address of which every segment is written as it is.
_PLAIN = re.compile(r"(?:[A-Za-z0-9_.~-]+/){5}[A-Za-z0-9_.~-]+")


class Address(Struct, frozen=True):
    """`workflow` is None for shared items; `kind` and `id` are None for workflow-global ones."""

    tenant: str
    scope: Scope
    workflow: str | None
    kind: str | None
    id: str | None
    key: str

    def __str__(self) -> str:
        return format_address(self)


def _segment(name: str, value: str | None) -> str:
    """Write one segment; `name` says in a refusal which one it is."""
    if value is None:
        return _ABSENT
    if value == _ABSENT:
        return "%2D"
    if not value:
        raise Rejection("address_invalid", f"the address's {name} is empty; give it a value")
    if _CONTROL_CHARACTER.search(value) is not None:
        raise Rejection("address_invalid", f"the address's {name} {value!r} holds a control character")
    return quote(value, safe="")


def format_address(address: Address) -> str:
    """Write the canonical text. Raises `Rejection` (`address_invalid`, `address_too_long`)."""
    parts = (address.tenant, address.scope, address.workflow, address.kind, address.id, address.key)
    # Nearly all are plain, and then this is faster than a cache of them would be.
    text = "/".join([_ABSENT if part is None else part for part in parts])
    if _ABSENT in parts or _PLAIN.fullmatch(text) is None:
        text = "/".join(map(_segment, Address.__struct_fields__, parts))
    if len(text) > DEFAULT_LIMITS.address_bytes:
        raise Rejection(
            "address_too_long",
            f"the address has {len(text)} bytes, {DEFAULT_LIMITS.address_bytes} are allowed; shorten id or key",
        )
    return text


def parse_address(text: str) -> Address:
    """Read a canonical text back. Raises `Rejection` (`address_invalid`)."""
    parts = text.split("/")
    if len(parts) != _SEGMENTS or parts[1] not in ("workflow", "shared"):
        raise Rejection("address_invalid", f"{text!r} is not tenant/scope/workflow/kind/id/key")
    tenant, scope, workflow, kind, item_id, key = (None if part == _ABSENT else unquote(part) for part in parts)
    if tenant is None or key is None or scope is None:
        raise Rejection("address_invalid", f"{text!r} lacks its tenant or key")
    return Address(tenant, "shared" if scope == "shared" else "workflow", workflow, kind, item_id, key)
