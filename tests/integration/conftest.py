"""Fixtures of the tests that run workers on real parts."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from pydantic import SecretStr

from tests.support.edge import Edge, edge
from workers.runtime.array_parameters import look_plainly
from workers.runtime.postgres import BY_KEY, Database


@pytest.fixture(scope="session", autouse=True)
def arrays_as_in_workers() -> None:
    """Workers' statements run here without the process around them, which sets this."""
    look_plainly()


@pytest_asyncio.fixture
async def variables(
    kafka_bootstrap_servers: str, database: str, topic_prefix: str, tmp_path: Path
) -> AsyncIterator[Edge]:
    """Topics, a database and variable workers of this test's own."""
    async with edge(kafka_bootstrap_servers, database, topic_prefix, tmp_path) as found:
        yield found


@pytest_asyncio.fixture
async def opened(database: str) -> AsyncIterator[Database]:
    """A database of this test's own, opened as workers open it."""
    async with Database(SecretStr(database), pool_size=4, application_name="test", session=BY_KEY) as opened:
        yield opened
