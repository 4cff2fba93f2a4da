"""What a broken connection to Kafka means, in words that help."""

import os
import re

from schemas.errors import DependencyDown

#: aiokafka's own words for "nobody took the connection", which list sockets.
_NO_CONNECTION = re.compile(r"Unable to bootstrap|Connect(ion)? (at|call|attempt)")


def kafka_down(servers: str, error: BaseException) -> DependencyDown:
    """Return what `error` says about the brokers at `servers`; raise it from the error, which holds the rest."""
    return DependencyDown("Kafka", servers, _reason(error))


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    # Without the class's name, which aiokafka puts before every text.
    text = " ".join(str(part) for part in error.args)
    if _NO_CONNECTION.match(text):
        return "no connection"
    return text or type(error).__name__
