"""How to reach Kafka: one value that every client is built from."""

from dataclasses import dataclass
from ssl import SSLContext
from typing import Any

from topics.catalog import Topic
from topics.header_names import read_any_header_name

# Here, because every client of ours is made of a connection.
read_any_header_name()

#: How long a broker may hold back an answer while nothing comes. Apache Kafka answers as soon as something does; the
#: embedded broker when this is over: at 500 (aiokafka's default) half of all records waited for 130 ms, at 50 for 10.
#: Asking twenty times a second costs a reader at rest one percent of a core, and the broker two.
FETCH_WAIT_MS = 50

#: How soon clients hear of partitions that were added, and of topics that were made anew; aiokafka's default is five
#: minutes, in which nobody would read what lies there.
METADATA_AGE_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConnection:
    """`prefix` stands before every topic's logical name and every consumer group."""

    bootstrap_servers: str
    prefix: str = "tally."
    security_protocol: str = "PLAINTEXT"
    ssl_context: SSLContext | None = None
    sasl_mechanism: str = "PLAIN"
    sasl_username: str | None = None
    sasl_password: str | None = None

    def wire_name(self, topic: Topic) -> str:
        """Return the topic's name on the broker."""
        return f"{self.prefix}{topic.value}"

    def logical(self, wire_name: str) -> Topic:
        """Return the catalog's name of a topic on the broker."""
        return Topic(wire_name.removeprefix(self.prefix))

    def client_options(self, client_id: str) -> dict[str, Any]:
        """Return what aiokafka's clients take."""
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "client_id": client_id,
            "metadata_max_age_ms": METADATA_AGE_MS,
            "security_protocol": self.security_protocol,
            "ssl_context": self.ssl_context,
            "sasl_mechanism": self.sasl_mechanism,
            "sasl_plain_username": self.sasl_username,
            "sasl_plain_password": self.sasl_password,
        }
