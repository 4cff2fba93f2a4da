"""Fixtures of the tests that run workers on real parts."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.support.edge import Edge, edge


@pytest_asyncio.fixture
async def variables(
    kafka_bootstrap_servers: str, database: str, topic_prefix: str, tmp_path: Path
) -> AsyncIterator[Edge]:
    """Topics, a database and variable workers of this test's own."""
    async with edge(kafka_bootstrap_servers, database, topic_prefix, tmp_path) as found:
        yield found
