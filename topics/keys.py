"""Which partition a key belongs to: murmur2, as the Java client and aiokafka place it."""

from functools import lru_cache

from aiokafka.partitioner import murmur2

_POSITIVE = 0x7FFFFFFF


@lru_cache(maxsize=262144)
def _hash(key: bytes) -> int:
    return int(murmur2(key)) & _POSITIVE


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of `key` among `partitions`."""
    return _hash(key) % partitions
