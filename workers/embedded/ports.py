"""Ports of the loopback interface."""

import socket
from collections.abc import Iterator

LOOPBACK = "127.0.0.1"


def is_free(port: int) -> bool:
    """Say whether a server could listen on the port now."""
    with socket.socket() as probe:
        # As servers do: ports in TIME_WAIT count as free, ports with a listener do not.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def candidates(preferred: int | None, attempts: int = 4) -> Iterator[int]:
    """Yield ports to try: the preferred one if it is free, then ones that the system hands out."""
    if preferred is not None and is_free(preferred):
        attempts -= 1
        yield preferred
    for _ in range(attempts):
        with socket.socket() as probe:
            probe.bind((LOOPBACK, 0))
            port: int = probe.getsockname()[1]
        yield port
