"""Records as only a producer of another language makes them."""

from aiokafka import AIOKafkaProducer
from aiokafka.record.util import calc_crc32c

from topics.catalog import Topic
from topics.connection import KafkaConnection

_CRC_AT, _CRC_FROM = 17, 21


def spoiled(batch: bytes) -> bytes:
    """Return a record batch in which the header name `ZZQQ` is no UTF-8, with the checksum that belongs to it."""
    data = bytearray(batch.replace(b"ZZQQ", b"\xff\xfe\xff\xfe"))
    data[_CRC_AT:_CRC_FROM] = calc_crc32c(bytes(data[_CRC_FROM:])).to_bytes(4, "big")
    return bytes(data)


async def publish_with_a_spoiled_header(
    connection: KafkaConnection, topic: Topic, partition: int, key: bytes, value: bytes
) -> None:
    """Publish one record whose only header has a name that is no UTF-8."""
    async with AIOKafkaProducer(**connection.client_options("test"), acks="all") as producer:
        batch = producer.create_batch()
        batch.append(key=key, value=value, timestamp=None, headers=[("ZZQQ", b"")])
        batch._buffer = spoiled(batch._build())
        await (await producer.send_batch(batch, connection.wire_name(topic), partition=partition))
