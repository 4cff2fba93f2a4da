"""Every promise is kept while workers are killed, paused and replaced, and PostgreSQL comes and goes."""

from pathlib import Path

import pytest

from tests.support.torture.run import Plan, torture


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_every_promise_is_kept_under_fire(kafka_bootstrap_servers: str, tmp_path: Path) -> None:
    plan = Plan(seed=20, seconds=75, logs=tmp_path, kafka=kafka_bootstrap_servers, pause_s=1.0)

    report = await torture(plan)

    said = "\n".join(report.lines())
    print(said)
    if not report.passed:
        report.history.save(tmp_path / "history.pickle.gz")
    assert report.passed, said
    # A run in which the faults did not bite proves nothing.
    assert report.faults.total() >= 20, said
    assert report.faults["zombies"] >= 1, said
    assert report.verdict.counts["conflicts: conditional_write"] >= 20, said
    assert report.verdict.counts["conflicts: lost_update"] >= 5, said
    assert report.verdict.counts["bad records"] >= 5, said
    assert report.verdict.counts["messages"] >= 20, said
    assert report.verdict.counts["simulated executions"] >= 5, said
    handovers = [count for fault, count in report.faults.items() if fault.endswith((".in_recovery", ".in_rebalance"))]
    assert sum(handovers) >= 1, said
    for proof in ("rebalances noticed", "replayed", "copies of outcomes", "dependency_down"):
        assert report.seen[proof] >= 1, f"{proof}: {said}"
