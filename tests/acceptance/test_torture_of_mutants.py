"""The torture finds seeded bugs of the kinds that delivery systems have had: a verdict that all is well means something."""

from pathlib import Path

import pytest

from tests.support.mutants import BUGS
from tests.support.torture.run import Plan, torture

KILLS = ("kill", "crash")
#: By bug: what is done to the workers, and violations of which at least one must be found.
EXPECTED = {
    "memory_acknowledged_before_published": (KILLS, {"outcome_missing", "published_missing"}),
    "memory_without_known_commands": (KILLS, {"version_reused", "outcome_changed", "version_gap"}),
    "memory_outcome_made_anew_on_redelivery": (KILLS, {"outcome_changed"}),
    "memory_silent_about_lost_updates": ((), {"lost_update_unreported", "not_linearizable"}),
    "memory_condition_checked_on_an_old_version": ((), {"condition_ignored"}),
    "memory_conversation_read_one_message_late": ((), {"message_lost"}),
    # Events are found again by the position that PostgreSQL has; what they were to publish is not.
    "variables_acknowledged_before_committed": (KILLS, {"event_lost", "published_missing"}),
    "variables_published_before_committed": (KILLS, {"published_changed", "published_uncommitted"}),
    "variables_published_from_memory_only": (KILLS, {"published_missing"}),
    "variables_simulated_for_real": ((), {"simulation_leaked"}),
}


def test_every_bug_is_tried():
    assert EXPECTED.keys() == BUGS.keys()


@pytest.mark.mutation
@pytest.mark.timeout(400)
@pytest.mark.parametrize("bug", EXPECTED)
async def test_a_seeded_bug_is_found(bug: str, kafka_bootstrap_servers: str, tmp_path: Path) -> None:
    faults, expected = EXPECTED[bug]
    worker = bug.split("_", maxsplit=1)[0]
    # A kill must meet a batch of the worker that has the bug: many runs for one kind, many commands for the other.
    clients, runs_per_s = (2, 8.0) if worker == "variables" else (8, 1.5)
    plan = Plan(
        seed=4,
        seconds=25,
        clients=clients,
        runs_per_s=runs_per_s,
        logs=tmp_path,
        kafka=kafka_bootstrap_servers,
        pause_s=0.8,
        faults=faults,
        victims=(bug.split("_", maxsplit=1)[0],),
        program=("-m", "tests.support.mutants", bug),
        drain_s=20,
    )

    report = await torture(plan)

    assert report.verdict.kinds & expected, "\n".join(report.lines())
