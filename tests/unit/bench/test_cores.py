"""Who is measured has a core to itself, and gives it back."""

import os
import subprocess
import sys

import pytest

from bench.cores import apart, cores_left

_WAIT = [sys.executable, "-c", "input()"]


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
    everywhere = os.sched_getaffinity(0)
    with subprocess.Popen(_WAIT, stdin=subprocess.PIPE) as server:
        with apart(1), subprocess.Popen(_WAIT, stdin=subprocess.PIPE) as measured:
            ours = os.sched_getaffinity(0)
            assert len(ours) == 1
            assert os.sched_getaffinity(measured.pid) == ours
            assert os.sched_getaffinity(server.pid) == everywhere - ours
            measured.communicate(b"\n")

        assert os.sched_getaffinity(0) == everywhere
        assert os.sched_getaffinity(server.pid) == everywhere
        server.communicate(b"\n")


def test_without_servers_nothing_is_moved() -> None:
    with apart(1) as where:
        assert where == "servers and processes share all cores"
