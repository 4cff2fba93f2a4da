"""Checks, and what the server shows of them."""

from datetime import UTC, datetime, timedelta

import aiohttp
import pytest

from schemas.errors import UsageError
from schemas.exact_json import loads
from workers.runtime.health import Health, serve

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def test_what_nobody_saw_working_is_not_ready() -> None:
    health = Health("worker", ("kafka", "postgres"))
    health.green("kafka")

    assert not health.ready

    health.green("postgres")
    assert health.ready


def test_a_red_check_says_since_when_and_why() -> None:
    now = NOON

    def clock() -> datetime:
        return now

    health = Health("worker", ("kafka",), clock=clock)
    health.green("kafka")
    now = NOON + timedelta(seconds=1)
    health.red("kafka", "first reason")
    now = NOON + timedelta(seconds=9)
    health.red("kafka", "second reason")

    check = health.checks["kafka"]
    assert (check.green, check.since, check.reason) == (False, NOON + timedelta(seconds=1), "second reason")


async def test_the_server_answers_alive_ready_and_metrics() -> None:
    health = Health("worker", ("kafka",))
    async with serve(health, "127.0.0.1", 0) as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        async with session.get("/healthz") as answer:
            assert answer.status == 200
        async with session.get("/readyz") as answer:
            assert answer.status == 503
            assert loads(await answer.read())["checks"]["kafka"]["status"] == "red"
        health.green("kafka")
        async with session.get("/readyz") as answer:
            assert answer.status == 200
        async with session.get("/metrics") as answer:
            assert 'tally_ready{worker="worker"} 1.0' in await answer.text()


async def test_no_host_serves_nothing() -> None:
    async with serve(Health("worker"), "", 0) as port:
        assert port is None


async def test_a_taken_port_says_what_to_do() -> None:
    async with serve(Health("one"), "127.0.0.1", 0) as port:
        assert port is not None
        with pytest.raises(UsageError, match="TALLY_HEALTH_PORT"):
            async with serve(Health("two"), "127.0.0.1", port):
                pass
