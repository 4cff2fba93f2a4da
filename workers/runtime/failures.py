"""The one place where an unknown exception ends the process.

A bug must not be acknowledged (Faust acknowledges the event of a raised exception), nor retried for ever
in silence: the process says what happened and leaves, nothing committed; its supervisor starts it again.
"""

import logging
import os
import sys
from typing import NoReturn

import structlog

#: sysexits.h EX_SOFTWARE: an internal error was found.
EXIT_BUG = 70
_log = structlog.get_logger("tally")


def crash(error: BaseException, *, worker: str, during: str) -> NoReturn:
    """Log `error` with its traceback, flush, and leave at once: no clean-up may commit or acknowledge anything."""
    _log.critical(
        "internal error: the worker stops, nothing of this batch is acknowledged",
        action="crash",
        worker=worker,
        during=during,
        exc_info=error,
    )
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_BUG)
