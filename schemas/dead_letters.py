"""What could not be accepted, as `topics.dead_letters` writes it."""

from schemas.data import Outbound


class DeadLettered(Outbound):
    """The original bytes and headers, where they lay, and why they were refused.

    `truncated`: value, key or headers were too large for a letter and are not all here.
    """

    code: str
    message: str
    worker: str
    topic: str
    partition: int
    offset: int
    key_base64: str | None
    value_base64: str | None
    value_bytes: int | None
    headers: list[list[str]]
    truncated: bool = False
