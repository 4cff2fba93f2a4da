"""structlog for our lines and for those of the libraries: constant messages, data as fields, to stderr."""

import logging
import sys
from collections.abc import Callable
from time import monotonic
from typing import Literal

import structlog
from structlog.typing import Processor

_OURS = "tally"


def configure(level: str, form: Literal["console", "json"]) -> None:
    """Set up logging of this process. Settings hold secrets as `SecretStr`, so a logged one shows stars only."""
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    renderer: Processor = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    last: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if form == "json":
        last.append(structlog.processors.format_exc_info)
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_LibrariesOncePerPeriod())
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[*last, renderer]))
    root = logging.getLogger()
    root.handlers = [handler]
    # The libraries' own lines are of interest when something is wrong; ours are the canonical ones.
    root.setLevel(logging.DEBUG if level == "DEBUG" else logging.WARNING)
    logging.getLogger(_OURS).setLevel(level)


class _LibrariesOncePerPeriod(logging.Filter):
    """Lets a library's message through once in ten seconds: a broker that is away gives a hundred lines a second."""

    _PERIOD_S = 10.0

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._last: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == _OURS or record.levelno >= logging.CRITICAL:
            return True
        key, now = (record.name, str(record.msg)), self._clock()
        if now - self._last.get(key, -self._PERIOD_S) < self._PERIOD_S:
            return False
        self._last[key] = now
        return True


def batch_logger(worker: str) -> "structlog.stdlib.BoundLogger":
    """Return the logger of a worker's canonical lines: one for each batch."""
    logger: structlog.stdlib.BoundLogger = structlog.get_logger(_OURS).bind(worker=worker)
    return logger
