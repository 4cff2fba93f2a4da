"""Become another program that dies with its parent: `guard.py PARENT SIGNAL ACCOUNT -- PROGRAM ARGUMENT...`.

Runs as a script of its own, between fork and the real program, since a `preexec_fn` may dead-lock in a process with
threads. PARENT is the process id that must still be the parent, SIGNAL what the kernel sends when it dies (also by
`kill -9`), ACCOUNT is `uid:gid` to change to, or `-`. Linux only does the first part; elsewhere the program is started
without it.

The kernel watches the *thread* that forked: whoever starts a guarded program does so from a thread that outlives it.
"""

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Change account, arm the death signal, become the program."""
    parent, death_signal, account, separator, *command = sys.argv[1:]
    assert separator == "--", "usage: guard.py PARENT SIGNAL UID:GID|- -- PROGRAM ARGUMENT..."
    if account != "-":
        uid, gid = map(int, account.split(":"))
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    # After setuid: changing credentials clears the death signal.
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != int(parent):  # the parent died before the signal was armed
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
