"""The two ways in which a worker ends itself at once."""

import subprocess
import sys

import pytest

from schemas.errors import SettingsInvalid
from workers.runtime import crash_points


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_a_bug_is_told_and_ends_the_process_without_clean_up() -> None:
    done = run_python(
        "import atexit\n"
        "from workers.runtime import failures, logs\n"
        "logs.configure('INFO', 'json')\n"
        "atexit.register(lambda: print('cleaned up'))\n"
        "secret = 'hunter2'\n"
        "try:\n    raise KeyError('lost')\n"
        "except KeyError as error:\n    failures.crash(error, worker='w', during='a batch')\n"
    )

    assert done.returncode == 70
    assert "KeyError" in done.stderr
    assert "during" in done.stderr
    assert "hunter2" not in done.stderr
    assert done.stdout == ""


def test_the_armed_pass_of_a_point_kills_the_process() -> None:
    done = run_python(
        "from workers.runtime.crash_points import configure, pass_point\n"
        "configure('here:2')\n"
        "pass_point('elsewhere'); pass_point('here'); print('once', flush=True); pass_point('here'); print('twice')\n"
    )

    assert done.returncode == 137
    assert done.stdout == "once\n"


def test_an_unarmed_point_does_nothing() -> None:
    crash_points.configure(None)

    crash_points.pass_point("here")


@pytest.mark.parametrize("text", ["", ":3", "here:0", "here:x", "here:-1"])
def test_a_wrong_point_is_refused(text: str) -> None:
    with pytest.raises(SettingsInvalid, match="TALLY_CRASH_AT"):
        crash_points.configure(text)
