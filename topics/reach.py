"""Why a broker that is there does not let us in: aiokafka logs it, and tells its caller only that nobody answered."""

import asyncio
import ssl
from contextlib import suppress

from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import BrokerResponseError, KafkaConnectionError, KafkaError, RequestTimedOutError
from aiokafka.protocol.metadata import MetadataRequest

from schemas.errors import DependencyDown
from topics.away import kafka_down
from topics.connection import KafkaConnection

_TIMEOUT_S = 5.0
_NO_OPTIONS_OF_A_CONNECTION = ("bootstrap_servers", "metadata_max_age_ms")


class Refused(DependencyDown):
    """The broker answers, but not to us: other settings are needed."""

    def __init__(self, servers: str, cause: str, remedy: str) -> None:
        super().__init__("Kafka", servers, cause)
        self.args = (f"Kafka at {servers} refuses the connection ({cause}); {remedy}",)


async def why_down(connection: KafkaConnection, error: BaseException) -> DependencyDown:
    """Return what `error`, of a client that could not start, means: the first server is asked once more."""
    servers = connection.bootstrap_servers
    if not isinstance(error, KafkaConnectionError):
        return kafka_down(servers, error)
    host, port, _ = collect_hosts(servers, randomize=False)[0]
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), _TIMEOUT_S)
    except OSError:
        return kafka_down(servers, error)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    try:
        await _ask(connection, host, port)
    except (TimeoutError, RequestTimedOutError):
        return kafka_down(servers, error)
    except ssl.SSLCertVerificationError as refusal:
        return Refused(servers, refusal.verify_message, "see TALLY_KAFKA_TLS_CA_FILE and the names in its certificate")
    except BrokerResponseError as refusal:
        return Refused(servers, _words(refusal), "see TALLY_KAFKA_SASL_USERNAME, its password and mechanism")
    except (KafkaError, OSError) as refusal:
        remedy = "see TALLY_KAFKA_SECURITY_PROTOCOL, and TALLY_KAFKA_TLS_CERT_FILE where it wants to know its clients"
        return Refused(servers, _words(refusal), remedy)
    return kafka_down(servers, error)


async def _ask(connection: KafkaConnection, host: str, port: int) -> None:
    options = connection.client_options("tally-reach")
    for name in _NO_OPTIONS_OF_A_CONNECTION:
        del options[name]
    found = await create_conn(host, port, **options, request_timeout_ms=int(_TIMEOUT_S * 1000))
    try:
        await found.send(MetadataRequest([]))
    finally:
        await found.close()


def _words(error: BaseException) -> str:
    return " ".join(str(part) for part in error.args) or type(error).__name__
