"""Canonical addresses of memory items: `tenant/scope/workflow/kind/id/key`.

Each segment is percent-encoded (RFC 3986: unreserved characters stay); `-` alone stands for an absent
segment, a literal `-` is `%2D`. The text is the Kafka key and the primary key in PostgreSQL.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal
from urllib.parse import quote, unquote

from schemas.errors import Rejection
from schemas.limits import DEFAULT_LIMITS

Scope = Literal["workflow", "shared"]
_SEGMENTS = 6
_ABSENT = "-"
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Address:
    """`workflow` is None for shared items; `kind` and `id` are None for workflow-global ones."""

    tenant: str
    scope: Scope
    workflow: str | None
    kind: str | None
    id: str | None
    key: str

    def __str__(self) -> str:
        return format_address(self)


@lru_cache(maxsize=65536)
def _encode(segment: str | None) -> str:
    if segment is None:
        return _ABSENT
    if segment == _ABSENT:
        return "%2D"
    return quote(segment, safe="")


def _check_segment(name: str, segment: str | None) -> None:
    if segment is None:
        return
    if not segment:
        raise Rejection("address_invalid", f"the address's {name} is empty; give it a value")
    if _CONTROL_CHARACTER.search(segment) is not None:
        raise Rejection("address_invalid", f"the address's {name} {segment!r} holds a control character")


def format_address(address: Address) -> str:
    """Write the canonical text. Raises `Rejection` (`address_invalid`, `address_too_long`)."""
    for name in ("tenant", "workflow", "kind", "id", "key"):
        _check_segment(name, getattr(address, name))
    text = "/".join(
        (
            _encode(address.tenant),
            address.scope,
            _encode(address.workflow),
            _encode(address.kind),
            _encode(address.id),
            _encode(address.key),
        )
    )
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
