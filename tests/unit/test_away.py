"""What broken connections and missing answers are called."""

import pytest
from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError, NodeNotReadyError

from schemas.errors import Unanswered
from topics.away import kafka_down


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (KafkaConnectionError("Unable to bootstrap from [('::1', 1, <AddressFamily.AF_INET6: 10>)]"), "no connection"),
        (KafkaConnectionError("Connection at k:9092 closed"), "no connection"),
        (AuthenticationFailedError("bad password"), "bad password"),
        (NodeNotReadyError(), "NodeNotReadyError"),
        (ConnectionResetError(104, "reset"), "connection reset by peer"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_a_broker_that_is_away_is_told_without_the_librarys_internals(error: BaseException, why: str) -> None:
    assert str(kafka_down("k:1", error)) == f"Kafka at k:1 does not answer ({why}); start it or correct its address"


def test_an_answer_that_did_not_come_blames_no_address() -> None:
    told = str(Unanswered("w-1", 2.0))

    assert told.startswith("no outcome of w-1 within 2 s: no worker answered; see with `tally doctor`")
    assert "`tally await w-1`" in told
