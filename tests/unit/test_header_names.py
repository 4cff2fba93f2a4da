"""No header name makes a record unreadable, for aiokafka's consumers of this process."""

import pytest
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from tests.support.raw_records import spoiled
from topics.header_names import AnyRecords


def batch(*names: str) -> bytes:
    """Return a batch with one record for each header name; `ZZQQ` becomes bytes that are no UTF-8."""
    builder = DefaultRecordBatchBuilder(
        2, 0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=0, batch_size=10_000
    )
    for number, name in enumerate(names):
        builder.append(number, 1_000 + number, b"key", b"value %d" % number, [(name, b"text"), ("none", None)])
    return spoiled(bytes(builder.build()))


def values(data: bytes) -> list[tuple[bytes, list[str]]]:
    records = AnyRecords(data)
    found = []
    while records.has_next():
        one = records.next_batch()
        assert one is not None
        assert one.validate_crc()
        found += [(record.value, [name for name, _ in record.headers]) for record in one]
    assert records.next_batch() is None
    return found


def test_aiokafkas_own_reader_raises() -> None:
    with pytest.raises(UnicodeDecodeError):
        list(DefaultRecordBatch(batch("ZZQQ")))


def test_every_record_is_read_once_and_in_order() -> None:
    data = batch("a", "b") + batch("c", "ZZQQ", "d", "ZZQQ") + batch("e")

    assert values(data) == [
        (b"value 0", ["a", "none"]),
        (b"value 1", ["b", "none"]),
        (b"value 0", ["c", "none"]),
        (b"value 1", ["\ufffd" * 4, "none"]),
        (b"value 2", ["d", "none"]),
        (b"value 3", ["\ufffd" * 4, "none"]),
        (b"value 0", ["e", "none"]),
    ]


def test_a_part_of_a_batch_at_the_end_is_left_for_the_next_fetch() -> None:
    assert [value for value, _ in values(batch("a") + batch("ZZQQ")[:40])] == [b"value 0"]


def test_every_consumer_reads_so() -> None:
    import topics.connection

    assert topics.connection.KafkaConnection
    assert fetcher.MemoryRecords is AnyRecords
