"""`tally dead-letters`: what was not accepted and why; published again once the cause is mended."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from schemas.codes import CODES
from schemas.dead_letters import DeadLettered
from schemas.envelope import Event
from schemas.errors import UsageError
from topics.catalog import Topic
from topics.dead_letters import first_letter_of, original_of
from topics.publisher import Publisher
from topics.subscriber import Subscriber
from workers.cli.app import answer_is_no, app, run
from workers.cli.options import Json, Limit
from workers.cli.output import complain, say, show_json, show_table
from workers.settings import Settings, read_settings

dead_letters = typer.Typer(no_args_is_help=True, help="Look at what was not accepted, and publish it again.")
app.add_typer(dead_letters, name="dead-letters")
Code = Annotated[str | None, typer.Option(help="Only this code, such as data_invalid.")]


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter with its event, from which the original is rebuilt."""

    event: Event
    data: DeadLettered

    @property
    def place(self) -> str:
        """Return where the original lies."""
        return f"{self.data.topic}/{self.data.partition}/{self.data.offset}"

    @property
    def document(self) -> dict[str, object]:
        """Return the letter as JSON."""
        first = {} if self.replay_of is None else {"replay_of": self.replay_of}
        return {"id": self.event.id, "place": self.place, **first, **self.event.data}

    @property
    def replay_of(self) -> str | None:
        """Return the id of the letter whose replay was refused again as this one."""
        return first_letter_of(self.event)


@dead_letters.command("list")
def list_command(*, code: Code = None, limit: Limit = 50, json: Json = False) -> None:
    """List dead letters, newest last: where each lay, why it was refused, what to do.

    A replay that was refused again is a letter of its own and names the first one.

    Example: `tally dead-letters list --code data_invalid`
    """
    letters = run(_letters(read_settings(), code))[-limit:]
    if json:
        show_json([letter.document for letter in letters])
        return
    if not letters:
        say("there are no dead letters")
        return
    show_table(
        None,
        ("id", "place", "code", "message", "replay of"),
        [
            (letter.event.id, letter.place, letter.data.code, letter.data.message, letter.replay_of or "")
            for letter in letters
        ],
        whole={"id"},
    )
    for seen in sorted({letter.data.code for letter in letters}):
        say(f"{seen}: {CODES.get(seen, 'see the message')}")


@dead_letters.command("replay")
def replay(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids as `list` shows them.")] = None,
    *,
    code: Code = None,
    every: Annotated[bool, typer.Option("--all", help="Every dead letter.")] = False,
    json: Json = False,
) -> None:
    """Publish originals again, byte by byte, to the topics they came from; safe to repeat.

    One header is added: `tally-replay-of`, the letter's id.

    Example: `tally dead-letters replay --code unknown_parent`
    """
    if not ids and code is None and not every:
        raise UsageError("name ids, or --code, or --all; `tally dead-letters list` shows what there is")
    settings = read_settings()
    letters = [letter for letter in run(_letters(settings, code)) if not ids or letter.event.id in ids]
    unknown = set(ids or ()) - {letter.event.id for letter in letters}
    if unknown:
        answer_is_no(f"no dead letter {', '.join(sorted(unknown))}; see `tally dead-letters list`")
    cut = [letter for letter in letters if letter.data.truncated]
    whole = [letter for letter in letters if letter not in cut]
    run(_republish(settings, whole))
    for letter in cut:
        complain(f"tally: {letter.event.id} is too large to be kept whole; publish it from its source")
    if json:
        show_json({"published": [letter.event.id for letter in whole], "cut": [letter.event.id for letter in cut]})
    else:
        say(f"{len(whole)} published again")
    if not whole:
        answer_is_no("there was nothing to publish again")


async def _letters(settings: Settings, code: str | None) -> list[Letter]:
    """Return the letters in the order of time, each once: a second delivery of a record gives the same letter."""
    found: dict[str, Letter] = {}
    async with Subscriber(settings.kafka(), [Topic.DEAD_LETTERS], start="beginning") as subscriber:
        timed = [(received.record.timestamp_ms, received) async for received in subscriber.until_end()]
    for _, received in sorted(timed, key=lambda pair: pair[0]):
        if received.event is None:
            continue
        data = received.data
        assert isinstance(data, DeadLettered), "nothing else is on this topic"
        if code in (None, data.code):
            found.setdefault(received.event.id, Letter(received.event, data))
    return list(found.values())


async def _republish(settings: Settings, letters: Sequence[Letter]) -> None:
    if not letters:
        return
    publisher = Publisher(settings.kafka(), "tally-replay")
    await publisher.start()
    try:
        await publisher.publish([original_of(letter.event, Topic(letter.data.topic)) for letter in letters])
    finally:
        await publisher.stop()
