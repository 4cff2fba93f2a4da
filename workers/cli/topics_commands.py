"""`tally topics`, `tally migrate`, `tally asyncapi`: what a deployment is made of."""

from pathlib import Path
from typing import Annotated

import typer

from schemas.errors import UsageError
from schemas.registry import ALL_TYPES
from topics.admin import Finding, TopicAdmin
from topics.asyncapi import document, json_schema
from topics.catalog import CATALOG, Topic
from workers.cli.app import answer_is_no, app, run
from workers.cli.output import complain, pretty, say, show_json, show_table
from workers.runtime.migrations import migrate
from workers.settings import Settings, read_settings

topics = typer.Typer(no_args_is_help=True, help="Create the topics of the catalog, or compare a broker with it.")
app.add_typer(topics, name="topics")
Json = Annotated[bool, typer.Option("--json", help="Write JSON for programs.")]


@topics.command("create")
def create(
    *,
    partitions: Annotated[int | None, typer.Option(min=1, help="Instead of TALLY_TOPIC_PARTITIONS.")] = None,
    replication: Annotated[int | None, typer.Option(min=1, help="Instead of TALLY_TOPIC_REPLICATION.")] = None,
    json: Json = False,
) -> None:
    """Create the topics that are missing; what exists stays as it is.

    Example: `TALLY_KAFKA_BOOTSTRAP_SERVERS=kafka:9092 tally topics create --partitions 16 --replication 3`
    """
    settings = read_settings()
    created = run(_create(settings, partitions, replication))
    if json:
        show_json({"created": [topic.value for topic in created]})
        return
    for topic in created:
        say(f"created {settings.kafka().wire_name(topic)}")
    say(f"{len(created)} created, {len(CATALOG) - len(created)} were there")


async def _create(settings: Settings, partitions: int | None, replication: int | None) -> list[Topic]:
    async with TopicAdmin(settings.kafka()) as admin:
        return await admin.create(
            partitions=partitions or settings.topic_partitions,
            replication=replication or settings.topic_replication,
        )


@topics.command("check")
def check(*, json: Json = False) -> None:
    """Compare the broker's topics with the catalog: each difference, and what to do about it. Exit 1 on an error."""
    settings = read_settings()
    findings = run(check_topics(settings))
    if json:
        show_json([describe_finding(finding) for finding in findings])
    elif findings:
        rows = [("error" if f.error else "note", f.topic.value, f.what, f.remedy) for f in findings]
        show_table(None, ("", "topic", "what", "what to do"), rows)
    else:
        say(f"all {len(CATALOG)} topics are as the catalog says")
    errors = sum(finding.error for finding in findings)
    if errors:
        answer_is_no(f"{errors} of the differences break a promise; see what to do above")


async def check_topics(settings: Settings) -> list[Finding]:
    """Return how the broker's topics differ. Raises `DependencyDown`."""
    async with TopicAdmin(settings.kafka()) as admin:
        return await admin.check(
            partitions=settings.topic_partitions,
            replication=settings.topic_replication,
            outcome_retention_days=settings.outcome_retention_days,
        )


def describe_finding(finding: Finding) -> dict[str, object]:
    """Return a difference as JSON."""
    return {
        "topic": finding.topic.value,
        "error": finding.error,
        "what": finding.what,
        "what_to_do": finding.remedy,
    }


@app.command("migrate")
def migrate_command(*, json: Json = False) -> None:
    """Bring the database of TALLY_POSTGRES_DSN up to date; safe to run at every start, also twice at once."""
    applied = run(migrate(read_settings().postgres_dsn))
    if json:
        show_json({"applied": applied})
        return
    for name in applied:
        say(f"applied {name}")
    if not applied:
        say("the database is up to date")


@app.command("asyncapi")
def asyncapi(
    *,
    schemas: Annotated[
        Path | None, typer.Option(help="Write a JSON Schema for each event type into this directory instead.")
    ] = None,
) -> None:
    """Write the contract: an AsyncAPI 3 document, or JSON Schemas for other languages.

    Example: `tally asyncapi > asyncapi.json`
    """
    if schemas is None:
        show_json(document())
        return
    try:
        schemas.mkdir(parents=True, exist_ok=True)
        for name in ALL_TYPES:
            (schemas / f"{name}.schema.json").write_text(pretty(json_schema(name)) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{schemas} cannot be written to ({error.strerror}); give a directory of your own") from error
    complain(f"{len(ALL_TYPES)} schemas written to {schemas}")
