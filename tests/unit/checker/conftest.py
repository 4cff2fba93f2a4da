"""A history to plant violations into."""

import copy

import pytest

from tests.support.history import History
from tests.support.simulated import plant_bad, simulate
from topics.catalog import Topic


@pytest.fixture(scope="module")
def kept() -> History:
    """A history in which every promise was kept, bad records among the good ones."""
    system = simulate(4, commands=90, runs=14)
    plant_bad(system, Topic.MEMORY_COMMANDS, b"not json", "malformed")
    plant_bad(system, Topic.EXECUTION_EVENTS, b'{"specversion":"1.0"}', "envelope_invalid")
    system.drain()
    return system.recorded()


@pytest.fixture
def history(kept: History) -> History:
    return copy.deepcopy(kept)
