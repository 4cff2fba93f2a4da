"""The limits of the contract, in one place, with units in their names."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes are bytes of compact UTF-8 JSON unless the name says otherwise."""

    record_bytes: int = 4 * 1024 * 1024
    output_bytes: int = 512 * 1024
    store_bytes: int = 8 * 1024 * 1024
    result_bytes: int = 1024 * 1024
    #: Four levels of the 64 are left for what an event wraps around a value.
    value_levels: int = 60
    #: What a request may hold while it waits: its body and the values that are bound already.
    waiting_bytes: int = 2 * 1024 * 1024
    #: What one revision brings about before the rest of its event is left to the next one. PostgreSQL takes messages
    #: of 1 GiB, and a worker holds each byte some times over.
    step_bytes: int = 16 * 1024 * 1024
    #: What the revisions that are written, or read to send them again, have together before a batch is cut.
    batch_bytes: int = 16 * 1024 * 1024
    final_variables_bytes: int = 512 * 1024
    memory_value_bytes: int = 256 * 1024
    conflict_value_bytes: int = 32 * 1024
    address_bytes: int = 1024
    name_characters: int = 256
    scratchpad_default_items: int = 20
    scratchpad_max_items: int = 1000
    summary_default_characters: int = 1200
    conversation_outcome_bytes: int = 256 * 1024
    default_ttl_seconds: int = 30 * 24 * 3600
    #: 100 years of 365.25 days.
    max_ttl_seconds: int = 36525 * 24 * 3600


DEFAULT_LIMITS = Limits()
