"""`tally demo` and `tally up` from nothing: they do what they say, and leave nothing running."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from workers.embedded.ports import is_free

REPOSITORY = Path(__file__).resolve().parents[2]
TALLY = [sys.executable, "-m", "workers"]


@pytest.mark.slow
def test_the_demo_shows_a_race_and_a_case_and_leaves_nothing_behind() -> None:
    shown = subprocess.run([*TALLY, "demo"], check=False, cwd=REPOSITORY, capture_output=True, text=True, timeout=120)

    assert shown.returncode == 0, shown.stderr
    assert re.search(r"run-lab-4[01] won; run-lab-4[01] knows it lost", shown.stdout)
    assert "23843037174560269" in shown.stdout
    assert "148.50" in shown.stdout
    assert "nothing is left running" in shown.stderr
    ports = re.findall(r"listens on 127\.0\.0\.1:(\d+)", shown.stderr)
    assert len(ports) == 2
    assert all(is_free(int(port)) for port in ports)


@pytest.mark.slow
def test_up_runs_until_it_is_told_to_stop() -> None:
    with subprocess.Popen(
        [*TALLY, "up"], cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as running:
        assert running.stdout is not None
        lines = [running.stdout.readline() for _ in range(5)]
        begun = time.monotonic()

        running.send_signal(signal.SIGINT)

        assert running.wait(60) == 0
        assert time.monotonic() - begun < 30
    assert any("TALLY_POSTGRES_DSN=" in line for line in lines)
