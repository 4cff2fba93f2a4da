"""A permit office whose cases race for the people who handle them: the facts hold in every storm."""

from pathlib import Path

import pytest

from tests.support.cases import make_events, write_events
from tests.support.office import play


@pytest.fixture
def log_of_cases(tmp_path: Path) -> Path:
    file = tmp_path / "office.jsonl"
    write_events(file, make_events(cases=120, people=8, seed=7))
    return file


@pytest.mark.parametrize(("workers", "times", "kills"), [(1, 2, 0), (3, 1, 0), (2, 1, 4)])
async def test_the_facts_hold_with_one_worker_with_three_and_with_killed_ones(
    log_of_cases: Path,
    kafka_bootstrap_servers: str,
    database: str,
    topic_prefix: str,
    tmp_path: Path,
    workers: int,
    times: int,
    kills: int,
) -> None:
    broken = await play(
        log_of_cases,
        kafka_bootstrap_servers,
        database,
        topic_prefix,
        tmp_path,
        workers=workers,
        times=times,
        kills=kills,
    )

    assert broken == []
