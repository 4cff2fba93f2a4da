"""Is this worker alive, is it ready, what are its figures: named checks and the server that shows them."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from schemas.errors import UsageError
from schemas.exact_json import dumps
from workers.logic.memory.timestamps import timestamp
from workers.runtime.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that readiness rests on. `reason` says what is wrong while it is red."""

    green: bool
    since: datetime
    reason: str = ""


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Health:
    """The checks of one worker. A check starts red: what nobody has seen working is not ready."""

    def __init__(
        self,
        worker: str,
        checks: Sequence[str] = (),
        *,
        metrics: Metrics | None = None,
        clock: Callable[[], datetime] = _utc_now,
    ) -> None:
        self.worker = worker
        self.metrics = metrics or Metrics(CollectorRegistry())
        self._clock = clock
        self._checks = {name: Check(green=False, since=clock(), reason="starting") for name in checks}
        self._show()

    @property
    def ready(self) -> bool:
        """Whether every check is green."""
        return all(check.green for check in self._checks.values())

    @property
    def checks(self) -> Mapping[str, Check]:
        """The checks as they stand."""
        return dict(self._checks)

    def green(self, name: str) -> None:
        """Say that `name` works."""
        if not self._is(name, green=True, reason=""):
            self._checks[name] = Check(green=True, since=self._clock())
            self._show()

    def red(self, name: str, reason: str) -> None:
        """Say that `name` does not work, and why. `since` stays that of the first red."""
        if not self._is(name, green=False, reason=reason):
            before = self._checks.get(name)
            since = before.since if before is not None and not before.green else self._clock()
            self._checks[name] = Check(green=False, since=since, reason=reason)
            self._show()

    def _is(self, name: str, *, green: bool, reason: str) -> bool:
        check = self._checks.get(name)
        return check is not None and check.green is green and check.reason == reason

    def _show(self) -> None:
        self.metrics.ready.labels(self.worker).set(1 if self.ready else 0)

    def report(self) -> bytes:
        """Return the checks as JSON: what /readyz answers."""
        return dumps(
            {
                "worker": self.worker,
                "ready": self.ready,
                "checks": {
                    name: {
                        "status": "green" if check.green else "red",
                        "since": timestamp(check.since),
                        **({"reason": check.reason} if check.reason else {}),
                    }
                    for name, check in sorted(self._checks.items())
                },
            }
        )


@asynccontextmanager
async def serve(health: Health, host: str, port: int) -> AsyncIterator[int | None]:
    """Serve /healthz (the process answers), /readyz (503 while a check is red) and /metrics.

    Gives the port, or None with an empty `host`, which serves nothing. Raises `UsageError` when the port is taken.
    """
    if not host:
        yield None
        return

    async def alive(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(_: web.Request) -> web.Response:
        return web.Response(body=health.report(), status=200 if health.ready else 503, content_type="application/json")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(health.metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    application = web.Application()
    application.add_routes([web.get("/healthz", alive), web.get("/readyz", ready), web.get("/metrics", metrics)])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise UsageError(
                f"{host}:{port} cannot be served ({error}); set TALLY_HEALTH_PORT to a free one"
            ) from error
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
