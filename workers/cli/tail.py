"""`tally tail`: what a topic carries, as lines for people or JSON for programs."""

import sys
from typing import Annotated

import typer
from rich.text import Text

from schemas.errors import UsageError
from topics.catalog import Topic
from topics.connection import KafkaConnection
from topics.subscriber import Received, Start, Subscriber
from workers.cli.app import app, run
from workers.cli.output import console, say_that_it_watches, short, show_json_line
from workers.logic.memory.timestamps import timestamp
from workers.settings import read_settings

_SHOWN_CHARACTERS = 160


@app.command("tail")
def tail(
    topic: Annotated[str, typer.Argument(help="A topic of the catalog, such as memory-conflicts.")],
    *,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Show everything that is kept.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    last: Annotated[int, typer.Option("--last", "-n", min=0, help="Show so many of the newest records.")] = 10,
    key: Annotated[str | None, typer.Option(help="Only records of this key (an execution id, an address).")] = None,
    json: Annotated[bool, typer.Option("--json", help="Write one JSON document a record.")] = False,
) -> None:
    """Show what a topic carries.

    Examples: `tally tail memory-conflicts -f` or `tally tail node-results --from-beginning --json`
    """
    settings = read_settings()
    chosen = topic_named(topic, settings.kafka())
    run(_tail(settings.kafka(), chosen, from_beginning=from_beginning, follow=follow, last=last, key=key, json=json))


def topic_named(name: str, connection: KafkaConnection) -> Topic:
    """Return a topic by its logical or its full name. Raises `UsageError` that lists them."""
    try:
        return connection.logical(name)
    except ValueError:
        raise UsageError(f"no topic {name!r}; there are: {', '.join(Topic)}") from None


async def _tail(
    connection: KafkaConnection,
    topic: Topic,
    *,
    from_beginning: bool,
    follow: bool,
    last: int,
    key: str | None,
    json: bool,
) -> None:
    # With a key the newest records may all be of others: then all are looked at.
    start: Start = "beginning" if from_beginning or key is not None else last
    keys = None if key is None else {key.encode()}
    async with Subscriber(connection, [topic], start=start, keys=keys, client_id="tally-tail") as subscriber:
        if from_beginning:
            async for received in subscriber.until_end():
                _show(received, json=json)
        else:
            kept = [received async for received in subscriber.until_end()]
            # Partitions come one after the other: the broker's time brings them into one order.
            kept.sort(key=lambda received: received.record.timestamp_ms)
            for received in kept[-last:] if last else []:
                _show(received, json=json)
        if follow:
            say_that_it_watches(topic.value if key is None else f"{topic.value} for {key}")
            async for received in subscriber:
                _show(received, json=json)


def _show(received: Received, *, json: bool) -> None:
    if json:
        show_json_line(describe(received))
        return
    record = received.record
    line = Text()
    line.append(f"{record.time:%H:%M:%S} ", style="dim")
    line.append(f"{record.partition}:{record.offset} ", style="dim")
    line.append(f"{(record.key or b'-').decode(errors='replace')} ")
    if received.event is not None:
        line.append(f"{received.event.type} ", style="bold cyan")
        data = received.event.data
        line.append(short(data, _SHOWN_CHARACTERS if sys.stdout.isatty() else 10_000))
    elif received.rejection is not None:
        line.append(f"{received.rejection.reason}: {received.rejection.message}", style="red")
    else:
        line.append("(gone)", style="dim")
    console().print(line, soft_wrap=True)


def describe(received: Received) -> dict[str, object]:
    """Return a record as JSON: where it lies, its key, and the event or why there is none."""
    record = received.record
    described: dict[str, object] = {
        "topic": record.topic.value,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": timestamp(record.time),
        "key": None if record.key is None else record.key.decode(errors="replace"),
    }
    event = received.event
    if event is not None:
        attributes = {
            "id": event.id,
            "source": event.source,
            "type": event.type,
            "subject": event.subject,
            "tenant": event.tenant,
            "data": event.data,
        }
        described["event"] = {name: value for name, value in attributes.items() if value is not None}
    elif received.rejection is not None:
        described["rejection"] = {"code": received.rejection.reason, "message": received.rejection.message}
    else:
        described["tombstone"] = True
    return described
