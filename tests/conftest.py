"""Fixtures that every tier shares. Nothing starts until a test asks for it."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings

from tests.support import stack

# A busy machine is no failure: no deadline. `repeatable` draws the same examples every time, so that a gate on
# coverage cannot fail by chance.
settings.register_profile("thorough", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", settings.get_profile("thorough"), derandomize=True)
settings.load_profile("thorough")


def pytest_report_header() -> str:
    return f"broker: {stack.broker_in_use()}"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def kafka_bootstrap_servers() -> AsyncIterator[str]:
    """Address of the session's Kafka."""
    async with stack.kafka() as address:
        yield address


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres_dsn() -> AsyncIterator[str]:
    """DSN of the session's PostgreSQL; tests use `database`, not this."""
    async with stack.postgres() as dsn:
        yield dsn


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def migrated_template(postgres_dsn: str) -> AsyncIterator[str]:
    async with stack.migrated_template(postgres_dsn) as name:
        yield name


@pytest_asyncio.fixture
async def database(postgres_dsn: str, migrated_template: str) -> AsyncIterator[str]:
    """DSN of a migrated database of this test's own."""
    async with stack.database(postgres_dsn, migrated_template) as dsn:
        yield dsn


@pytest.fixture
def topic_prefix() -> str:
    """Topic prefix of this test's own; pass it as `TALLY_TOPIC_PREFIX`."""
    return stack.unique_prefix()
