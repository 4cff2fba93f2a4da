"""Which account PostgreSQL runs under, and places which that account can reach.

PostgreSQL refuses to run as root. When we are root, it runs as `nobody`, or as the owner of a data directory that
exists already. That account may be unable to enter root's directories (a clone or virtual environment below /root);
opening those for everybody would be none of our business, so copies and data go below `SHARED_STATE` instead.
"""

import os
import pwd
import secrets
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

from workers.embedded.child import Account
from workers.embedded.errors import DirectoryUnusable, EmbeddedError

SHARED_STATE = Path("/var/lib/tallystick")


def server_account(data: Path) -> Account | None:
    """Name the account to change to; None means: stay who we are."""
    if os.geteuid() != 0:
        return None
    owner = data.stat().st_uid if data.exists() else 0
    try:
        entry = pwd.getpwuid(owner) if owner else pwd.getpwnam("nobody")
    except KeyError:
        raise EmbeddedError(
            "PostgreSQL does not run as root, and there is no account 'nobody' to run it under:"
            " start as an ordinary user, or set TALLY_POSTGRES_DSN"
        ) from None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def can_reach(account: Account | None, path: Path) -> bool:
    """Say whether the account may enter every directory above the path."""
    if account is None:
        return True
    return all(
        directory.stat().st_mode & (stat.S_IXUSR if directory.stat().st_uid == account.uid else stat.S_IXOTH)
        for directory in path.resolve().parents
        if directory.exists()
    )


def reachable_data(account: Account | None, wanted: Path) -> Path:
    """Give the wanted place; where the account cannot reach it, a new one below `SHARED_STATE` that `wanted` links to.

    Removing the link begins anew, as removing the directory would; what it led to stays until somebody removes it.
    """
    if wanted.is_symlink():
        return wanted.readlink()
    if can_reach(account, wanted):
        return wanted
    place = _shared(wanted) / "data" / secrets.token_hex(8)
    wanted.symlink_to(place)
    return place


def reachable_programs(account: Account | None, roots: Sequence[Path], version: str, needed: Path) -> Path:
    """Give the path of the program `needed`, copying the trees `roots` (siblings) once if the account cannot reach it.

    The trees are copied side by side, since programs find their libraries relative to themselves.
    """
    readable = needed.stat().st_mode & (stat.S_IROTH | stat.S_IXOTH) == stat.S_IROTH | stat.S_IXOTH
    if account is None or (readable and can_reach(account, needed)):
        return needed
    home = _shared(needed) / f"postgresql-{version}"
    if not home.exists():
        draft = home.with_name(f".{home.name}.{os.getpid()}")
        for root in roots:
            shutil.copytree(root, draft / root.name, symlinks=True)
        for path in (draft, *draft.rglob("*")):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | stat.S_IROTH | (stat.S_IXOTH if _entered(path) else 0))
        _place(draft, home)
    return home / needed.relative_to(roots[0].parent)


def _place(draft: Path, home: Path) -> None:
    try:
        draft.rename(home)
    except OSError:
        shutil.rmtree(draft)
        if not home.exists():  # else another process has just put the same copy there
            raise


def _entered(path: Path) -> bool:
    return path.is_dir() or bool(path.stat().st_mode & stat.S_IXUSR)


def _shared(instead_of: Path) -> Path:
    try:
        for directory, mode in ((SHARED_STATE, 0o755), (SHARED_STATE / "data", 0o711)):
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(mode)  # whatever the umask
    except OSError as error:
        raise DirectoryUnusable(
            instead_of,
            f"cannot be entered by the account that PostgreSQL runs under, and {SHARED_STATE} cannot be made"
            f" ({error.strerror}): start as an ordinary user, or move the clone out of root's home",
        ) from error
    return SHARED_STATE
