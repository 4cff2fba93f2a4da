"""Every error that crosses a module boundary.

TallyError
├── Rejection            bad input: a dead letter or a refused request, the partition moves on
├── DependencyDown       Kafka or PostgreSQL is away: retry with backoff, commit nothing
│   └── Unanswered       no worker answered in time; the answer may still come
├── Fenced               another worker moved the position: roll back, look up again
└── UsageError           a person called a command or the client wrongly
    └── SettingsInvalid  an environment variable is missing or wrong

`code` is stable and never reused; the message says what happened, with which value, and what to do.
"""

from typing import ClassVar


class TallyError(Exception):
    """Base of all errors of Tallystick."""

    code: ClassVar[str] = "error"
    retriable: ClassVar[bool] = False


#: What an answer or dead letter quotes of what was wrong must fit into a record, whoever wrote four megabytes of it.
_MESSAGE_CHARACTERS = 2000


class Rejection(TallyError):  # noqa: N818 - a decision about input, named as such
    """An event or request cannot be accepted. `reason` is one of the codes of `schemas.codes`.

    A message that quotes too much is cut in the middle: its beginning says what happened, its end what to do.
    """

    def __init__(self, reason: str, message: str) -> None:
        if len(message) > _MESSAGE_CHARACTERS:
            half = _MESSAGE_CHARACTERS // 2
            message = f"{message[:half]}…{message[-half:]}"
        super().__init__(message)
        self.reason = reason
        self.message = message


class DependencyDown(TallyError):  # noqa: N818
    """A dependency does not answer; the caller retries."""

    code = "dependency_down"
    retriable = True

    def __init__(self, name: str, where: str, cause: str) -> None:
        super().__init__(f"{name} at {where} does not answer ({cause}); start it or correct its address")
        self.name = name
        self.where = where


class Unanswered(DependencyDown):
    """No worker answered in time; what was asked is published and may still be carried out."""

    code = "unanswered"

    def __init__(self, event_id: str, timeout_s: float) -> None:
        super().__init__("a worker", "", "")
        waited = f"no outcome of {event_id} within {timeout_s:g} s: no worker answered"
        then = f"it is published, and `tally await {event_id}` tells what comes of it later"
        self.args = (f"{waited}; see with `tally doctor` whether one runs and keeps up; {then}",)


class Fenced(TallyError):  # noqa: N818
    """The stored position is not the one this worker left: someone else has the partition."""

    code = "fenced"
    retriable = True


class UsageError(TallyError):
    """A command or call cannot be understood."""

    code = "usage"


class SettingsInvalid(UsageError):  # noqa: N818
    """A setting is missing or wrong."""

    code = "settings_invalid"
