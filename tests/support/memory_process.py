"""One memory worker as a process of its own, set up by the environment as in production."""

import asyncio
import signal

from workers.memory.worker import run
from workers.runtime import crash_points, logs
from workers.settings import read_settings


async def main() -> None:
    settings = read_settings()
    logs.configure(settings.log_level, settings.log_format)
    crash_points.configure(settings.crash_at)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await run(settings, stop)


if __name__ == "__main__":
    asyncio.run(main())
