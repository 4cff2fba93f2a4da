"""Everything Tallystick needs besides itself, for as long as a `with` block lasts."""

import asyncio
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from workers.embedded import kafka, postgres
from workers.embedded.accounts import SHARED_STATE, can_reach, server_account
from workers.embedded.errors import DirectoryUnusable
from workers.embedded.kafka import EmbeddedKafka
from workers.embedded.postgres import EmbeddedPostgres

_TEMPORARY = "tallystick-"
#: A home this young may not be locked by its maker yet.
_BEING_MADE_S = 10.0


class EmbeddedStack:
    """A broker and a PostgreSQL of our own.

    With a `directory`, PostgreSQL's data stays there for the next start; without, nothing stays. Kafka's records are in
    memory and never stay; `cluster_id` tells one start's offsets from another's. Both servers end with the block, and
    with this process in whatever way it dies. Raises an `EmbeddedError` that says what to do.
    """

    def __init__(
        self,
        directory: Path | None = None,
        on_progress: Callable[[str], None] = lambda _: None,
        *,
        kafka_port: int | None = kafka.DEFAULT_PORT,
        postgres_port: int | None = postgres.DEFAULT_PORT,
    ) -> None:
        """Prefer the ports given (None: any); a taken one is replaced by a free one."""
        self._directory = directory
        self._on_progress = on_progress
        self._ports = (kafka_port, postgres_port)
        self._exits = AsyncExitStack()
        self.bootstrap_servers = ""
        self.postgres_dsn = ""
        self.cluster_id = ""

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as exits:
            home = _Held(self._directory.absolute()) if self._directory else TemporaryHome()
            directory = exits.enter_context(home)
            kafka_port, postgres_port = self._ports
            self._database = database = EmbeddedPostgres(directory, self._on_progress, port=postgres_port)
            self.postgres_dsn = (await exits.enter_async_context(database)).dsn
            self._broker = broker = EmbeddedKafka(directory, self._on_progress, port=kafka_port)
            self.bootstrap_servers = (await exits.enter_async_context(broker)).bootstrap_servers
            self.cluster_id = broker.cluster_id
            self._exits = exits.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exits.aclose()

    async def ended(self) -> None:
        """Wait until a server ends by itself. Raises `StartFailed` with the end of its log."""
        waits = [asyncio.create_task(server.ended()) for server in (self._database, self._broker)]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            done.pop().result()
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


class TemporaryHome:
    """A directory that is removed afterwards, as are those that killed processes left behind."""

    def __enter__(self) -> Path:
        parent = _temporary_parent()
        _remove_abandoned(parent)
        path = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=parent))
        path.chmod(0o711)  # the account that PostgreSQL runs under must pass
        self._held = _Held(path)
        return self._held.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self._held.directory)
        self._held.__exit__(kind, error, trace)


class _Held:
    """Holds a directory for one process; the kernel lets go when that process dies."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __enter__(self) -> Path:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._file: IO[str] = (self.directory / "lock").open("a+")
        except PermissionError as error:
            raise DirectoryUnusable(
                self.directory, "may not be written to by this account: give one of your own"
            ) from error
        except OSError as error:
            raise DirectoryUnusable(
                self.directory, f"cannot be used ({error.strerror}): give a directory that can be written to"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            holder = self._file.read().strip()
            self._file.close()
            raise DirectoryUnusable(
                self.directory, f"is in use by process {holder}: stop it, or give another directory"
            ) from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()
        return self.directory

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def _temporary_parent() -> Path:
    parent = Path(tempfile.gettempdir())
    if can_reach(server_account(parent), parent / "any"):
        return parent
    SHARED_STATE.mkdir(mode=0o755, parents=True, exist_ok=True)
    return SHARED_STATE


def _remove_abandoned(parent: Path) -> None:
    """Remove temporary homes of ours that no living process holds."""
    for home in parent.glob(f"{_TEMPORARY}*/"):
        try:
            facts = home.lstat()
            if facts.st_uid != os.geteuid() or time.time() - facts.st_mtime < _BEING_MADE_S or home.is_symlink():
                continue
            with (home / "lock").open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(home)
        except OSError:
            continue  # in use, never locked, or its servers are just leaving
