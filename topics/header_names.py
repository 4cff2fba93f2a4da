"""Records whose header names are not UTF-8 are read like all others.

Kafka keeps any bytes, and any producer may send some. aiokafka's reader raises at such a name, and so it does at every
delivery: one record would stop each consumer of its partition for ever.
"""

import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchPy

_LENGTH = struct.Struct(">8xi")


class _Buffer(bytearray):
    """A batch's bytes, in which every text can be read: what is no UTF-8 becomes U+FFFD."""

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return _Buffer(found) if isinstance(index, slice) else found

    def decode(self, encoding: str = "utf-8", _: str = "strict") -> str:
        return super().decode(encoding, "replace")


class _Batch:
    """A batch of aiokafka's fast reader, and its bytes for the one that reads any name."""

    def __init__(self, batch: Any, data: memoryview) -> None:
        self._batch = batch
        self._data = data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        return next(self._batch)

    def __iter__(self) -> Iterator[Any]:
        read = 0
        try:
            for record in self._batch:
                yield record
                read += 1
        except UnicodeDecodeError:
            again = _DefaultRecordBatchPy(self._data)
            iter(again)  # uncompresses
            again._buffer = _Buffer(again._buffer)  # noqa: SLF001
            yield from islice(again, read, None)


class AnyRecords:
    """aiokafka's `MemoryRecords`: what a fetch brought of one partition, batch after batch."""

    _fast: Any = fetcher.MemoryRecords

    def __init__(self, data: bytes) -> None:
        self._records = self._fast(data)
        self._data = memoryview(data)
        self._position = 0

    def size_in_bytes(self) -> int:
        """Return how much was fetched."""
        size: int = self._records.size_in_bytes()
        return size

    def has_next(self) -> bool:
        """Tell whether there is another whole batch."""
        return bool(self._records.has_next())

    def next_batch(self) -> _Batch | None:
        """Return the next batch."""
        batch = self._records.next_batch()
        if batch is None:
            return None
        start = self._position
        self._position += _LENGTH.size + _LENGTH.unpack_from(self._data, start)[0]
        return _Batch(batch, self._data[start : self._position])


def read_any_header_name() -> None:
    """Let every consumer of this process read so."""
    fetcher.MemoryRecords = AnyRecords
