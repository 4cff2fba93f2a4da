"""Which cores the processes of a row run on: each measured process has one to itself, where the servers keep one.

In production broker and PostgreSQL are other machines. Here the scheduler wakes a backend of PostgreSQL on the core of
the worker that it answers; one of the two then waits, half as long as it works, while the other core is idle. Whoever
is measured, ours or a limit, has the same cores.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path


def cores_left(cores: AbstractSet[int], processes: int) -> frozenset[int]:
    """Return the last cores, as many as there are `processes`; none where the servers would be left without one."""
    return frozenset(sorted(cores)[-processes:]) if len(cores) > processes else frozenset()


@contextlib.contextmanager
def apart(processes: int) -> Iterator[str]:
    """Keep this process, and those that it starts in the block, off the cores of those that it started before.

    Where cores do not suffice, or the system has no such thing (only Linux has), everything runs everywhere. Yields
    what was done, in words.
    """
    everywhere = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else set()
    ours = cores_left(everywhere, processes)
    servers = _descendants(os.getpid()) if ours else []
    if not servers:
        yield "servers and processes share all cores"
        return
    _move(servers, everywhere - ours)
    os.sched_setaffinity(0, ours)
    try:
        yield f"on core {_words(ours)}, the servers on {_words(everywhere - ours)}"
    finally:
        os.sched_setaffinity(0, everywhere)
        _move(servers, everywhere)


def _descendants(root: int) -> list[int]:
    """Return the processes that a process started, and those that they started (Linux: from /proc)."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(status.parent.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]


def _move(processes: list[int], cores: AbstractSet[int]) -> None:
    """Let processes run on `cores`, each of their threads; what they start will too."""
    for pid in processes:
        for thread in Path(f"/proc/{pid}/task").glob("*"):
            # Threads end while they are looked at.
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), cores)


def _words(cores: Iterable[int]) -> str:
    return " and ".join(map(str, sorted(cores)))
