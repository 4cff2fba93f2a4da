"""Who is measured has a core to itself, and gives it back."""

import os
import subprocess
import sys

import pytest

from bench.cores import cores_left

#: In a process of its own: this one may have servers, of tests, that nobody should move.
_ALONE = """
from bench.cores import apart

with apart(1) as where:
    print(where)
"""
_WITH_A_SERVER = """
import os, subprocess, sys
from bench.cores import apart

wait = [sys.executable, "-c", "input()"]
everywhere = os.sched_getaffinity(0)
server = subprocess.Popen(wait, stdin=subprocess.PIPE)
with apart(1):
    ours = os.sched_getaffinity(0)
    measured = subprocess.Popen(wait, stdin=subprocess.PIPE)
    assert len(ours) == 1
    assert os.sched_getaffinity(measured.pid) == ours
    assert os.sched_getaffinity(server.pid) == everywhere - ours
    measured.communicate(b"\\n")

assert os.sched_getaffinity(0) == everywhere
assert os.sched_getaffinity(server.pid) == everywhere
server.communicate(b"\\n")
print("done")
"""


def run(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize(
    ("cores", "processes", "left"),
    [({0, 1}, 1, {1}), ({0, 1}, 2, set()), ({0, 1, 2, 5}, 2, {2, 5}), ({3}, 1, set()), (set(), 1, set())],
)
def test_the_servers_keep_a_core_and_nobody_shares_one(cores: set[int], processes: int, left: set[int]) -> None:
    assert cores_left(cores, processes) == left


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs Linux and two cores"
)
def test_what_ran_before_is_kept_off_the_cores_of_what_is_measured() -> None:
    assert run(_WITH_A_SERVER) == "done"


def test_without_servers_nothing_is_moved() -> None:
    assert run(_ALONE) == "servers and processes share all cores"
