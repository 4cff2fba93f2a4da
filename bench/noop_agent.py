"""`python -m bench.noop_agent SERVERS TOPIC COUNT`: an agent that does nothing; a line every COUNT."""

import sys
import tempfile

import faust
import uvloop
from faust.types import StreamT


def main() -> None:
    """Run until killed."""
    servers, topic_name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    uvloop.install()
    app = faust.App(
        topic_name,
        broker=[f"kafka://{server}" for server in servers.split(",")],
        consumer_auto_offset_reset="earliest",
        broker_session_timeout=60.0,
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        datadir=tempfile.gettempdir(),
        value_serializer="raw",
        key_serializer="raw",
    )
    seen = 0

    async def nothing(stream: StreamT[bytes]) -> None:
        nonlocal seen
        async for _ in stream:
            seen += 1
            if seen % count == 0:
                print(seen, flush=True)

    app.agent(app.topic(topic_name, value_type=bytes), name="nothing")(nothing)
    faust.Worker(app, loglevel="ERROR", quiet=True, redirect_stdouts=False).execute_from_commandline()


if __name__ == "__main__":
    main()
