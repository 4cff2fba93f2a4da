"""`tally publish`: a file of events, or standard input, to the topics they belong to."""

import gzip
import os
import sys
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated, cast

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from schemas.errors import Rejection, UsageError
from schemas.exact_json import InvalidJson, JsonObject, dumps, loads
from topics.catalog import Topic, spec_of
from topics.codec import STRUCTURED_HEADERS, decode
from topics.publisher import Publisher
from topics.records import Record
from topics.routing import route
from workers.cli.app import ExitCode, app, run
from workers.cli.foreseen import check_alone
from workers.cli.output import complain, counted, say, show_json
from workers.settings import Settings, read_settings

_BATCH_RECORDS = 2000
_SHOWN_REFUSALS = 20
_GZIP_MAGIC = b"\x1f\x8b"
_LINE_FIELDS = frozenset({"topic", "key", "event"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """A line that was not published, and why."""

    line: int
    code: str
    message: str


@dataclass(slots=True)
class Published:
    """What became of a file."""

    records: int = 0
    refusals: list[Refusal] = field(default_factory=list)


def record_of_line(line: bytes, *, by_type: bool = False) -> Record:
    """Return the record that a line asks for. Raises `Rejection`.

    An event's bytes are published as they stand. `{"topic", "key"?, "event"}` says itself where to.
    """
    try:
        parsed = loads(line)
    except InvalidJson as error:
        raise Rejection(error.code, str(error)) from error
    if isinstance(parsed, dict) and "topic" in parsed and "specversion" not in parsed:
        return _addressed_record(parsed)
    event = decode(line)
    topic, key = route(event, by_type=by_type)
    check_alone(event, topic)
    return Record(topic, key, line, STRUCTURED_HEADERS)


def _addressed_record(line: JsonObject) -> Record:
    unknown = sorted(line.keys() - _LINE_FIELDS)
    inputs = [topic.value for topic in Topic if spec_of(topic).direction == "in"]
    if unknown or line["topic"] not in inputs:
        what = f"unknown field {unknown[0]}" if unknown else f"{line['topic']!r} is not an input topic"
        raise Rejection("data_invalid", f'{what}; a line is {{"topic", "key"?, "event"}}, topics: {", ".join(inputs)}')
    topic = Topic(str(line["topic"]))
    value = dumps(line.get("event"))
    event = decode(value)
    check_alone(event, topic)
    if "key" in line:
        key = line["key"]
        if key is not None and not isinstance(key, str):
            raise Rejection("data_invalid", f"key is {key!r}; it should be a text or null")
        return Record(topic, None if key is None else key.encode(), value, STRUCTURED_HEADERS)
    key_bytes = event.subject.encode() if event.subject and topic is not Topic.MEMORY_COMMANDS else route(event)[1]
    return Record(topic, key_bytes, value, STRUCTURED_HEADERS)


async def publish_lines(settings: Settings, lines: Iterable[bytes], *, by_type: bool = False) -> Published:
    """Publish every good line, in order; bad ones are reported, not sent. Raises `DependencyDown`."""
    published = Published()
    publisher = Publisher(settings.kafka(), "tally-publish")
    await publisher.start()
    try:
        batch: list[Record] = []
        for number, line in enumerate(lines, start=1):
            # Editors of some systems begin a file with a byte order mark, which is no JSON.
            stripped = line.removeprefix(BOM_UTF8).strip()
            if not stripped:
                continue
            try:
                batch.append(record_of_line(stripped, by_type=by_type))
            except Rejection as refused:
                published.refusals.append(Refusal(number, refused.reason, refused.message))
            if len(batch) == _BATCH_RECORDS:
                await publisher.publish(batch)
                published.records += len(batch)
                batch = []
        if batch:
            await publisher.publish(batch)
            published.records += len(batch)
    finally:
        await publisher.stop()
    return published


@app.command("publish")
def publish(
    file: Annotated[str, typer.Argument(metavar="FILE.jsonl|-", help="Events, one a line; .gz too; - reads stdin.")],
    *,
    by_type: Annotated[
        bool, typer.Option("--by-type", help="Send activity outputs to activity-outputs (their order is then free).")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Write the summary as JSON.")] = False,
) -> None:
    """Publish events from a file: safe to repeat, the same event is applied once.

    Everything of an execution goes to execution-events, so that the file's order holds; memory and conversation
    commands (no subject) go to memory-commands. A line may also be {"topic", "key"?, "event"}.
    Lines that a worker would refuse whatever is stored are named with their numbers, all others are published, and
    the exit code is 2.

    Examples: `tally publish permits.jsonl.gz` or `grep case-891 permits.jsonl | tally publish -`
    """
    settings = read_settings()
    with _open(file) as (stream, raw), _progress() as progress:
        published = run(publish_lines(settings, _lines(stream, progress, raw), by_type=by_type))
    if json:
        refused = [{"line": r.line, "code": r.code, "message": r.message} for r in published.refusals]
        show_json({"published": published.records, "refused": refused})
    else:
        say(f"{counted(published.records, 'event')} published")
    for refusal in published.refusals[:_SHOWN_REFUSALS]:
        complain(f"tally: line {refusal.line}: {refusal.code}: {refusal.message}")
    if published.refusals:
        refused_lines = counted(len(published.refusals), "line")
        complain(f"tally: not published: {refused_lines}; correct what is named above and publish the file again")
        raise typer.Exit(ExitCode.USAGE)


@contextmanager
def _open(file: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Give the stream of lines and, below it, the stream whose position shows the progress."""
    try:
        raw: IO[bytes] = sys.stdin.buffer if file == "-" else Path(file).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}); give a file of events, or - for stdin") from error
    try:
        if _is_gzip(raw):
            yield cast("IO[bytes]", gzip.GzipFile(fileobj=raw)), raw
        else:
            yield raw, raw
    finally:
        if file != "-":
            raw.close()


def _is_gzip(raw: IO[bytes]) -> bool:
    peek = getattr(raw, "peek", None)
    return peek is not None and peek(2)[:2] == _GZIP_MAGIC


def _progress() -> Progress:
    return Progress(
        TextColumn("publishing"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[lines]} lines"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


def _lines(stream: IO[bytes], progress: Progress, raw: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines, moving the bar by the bytes of the file below."""
    try:
        total = os.fstat(raw.fileno()).st_size or None
    except (OSError, ValueError):
        total = None
    task = progress.add_task("publishing", total=total, lines=0)
    try:
        for number, line in enumerate(stream, start=1):
            if number % _BATCH_RECORDS == 0:
                progress.update(task, lines=number, completed=raw.tell() if total else 0)
            yield line
    except (gzip.BadGzipFile, EOFError, OSError) as error:
        raise UsageError(
            f"the file ends badly ({error}); what came before was published, repair it and publish again"
        ) from error
