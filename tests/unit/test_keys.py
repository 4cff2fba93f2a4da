from aiokafka.partitioner import murmur2 as reference
from hypothesis import given
from hypothesis import strategies as st

from topics.keys import murmur2, partition_of


@given(st.binary(max_size=100))
def test_the_hash_is_that_of_the_java_client(key: bytes) -> None:
    assert murmur2(key) == reference(key)


def test_a_key_lies_where_the_java_client_puts_it() -> None:
    # From Apache Kafka's UtilsTest.testMurmur2.
    assert murmur2(b"21") == -973932308 & 0xFFFFFFFF
    assert murmur2(b"a-little-bit-long-string") == -985981536 & 0xFFFFFFFF
    assert partition_of(b"21", 2) == (-973932308 & 0x7FFFFFFF) % 2
