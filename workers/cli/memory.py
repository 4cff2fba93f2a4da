"""`tally memory` and `tally conflicts`: durable items now, then, and as they change."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, TypeVar, cast

import typer

from schemas.address import Address, format_address, parse_address
from schemas.envelope import Event
from schemas.errors import UsageError
from schemas.exact_json import JsonObject, Raw, loads
from schemas.memory import MemoryChanged, MemoryConflictDetected
from topics.catalog import Topic
from topics.client import Client
from topics.client import Subject as MemorySubject
from topics.subscriber import Start, Subscriber
from workers.cli.app import answer_is_no, app, run
from workers.cli.conflict_view import conflict_line
from workers.cli.database import reading
from workers.cli.once import Once
from workers.cli.options import DEFAULT_TENANT, Follow, Json, Limit, Tenant
from workers.cli.output import say, short, show_json, show_json_line, show_table
from workers.logic.memory.items import Item, Version
from workers.memory import history
from workers.runtime.postgres import Connection
from workers.settings import Settings, read_settings

memory = typer.Typer(no_args_is_help=True, help="Look at durable memory, forget items, watch changes.")
app.add_typer(memory, name="memory")
_T = TypeVar("_T")
_SLASHES_OF_AN_ADDRESS = 5

ItemArgument = Annotated[
    str,
    typer.Argument(metavar="ITEM", help="An address as `tally memory list` shows it, or a key with the options below."),
]
Subject = Annotated[
    str | None, typer.Option(metavar="KIND:ID", help="Whom it is about; without, the item is workflow-global.")
]
Workflow = Annotated[str | None, typer.Option(help="The workflow whose private item it is; without, it is shared.")]


@memory.command("get")
def get(
    item: ItemArgument,
    *,
    subject: Subject = None,
    workflow: Workflow = None,
    tenant: Tenant = DEFAULT_TENANT,
    json: Json = False,
) -> None:
    """Show an item: value, version, writer, expiry. Exit 1 when nothing is stored.

    Example: `tally memory get creatinine-precedente --workflow creatinine-watch --subject patient:P-4711`
    """
    address = _address(item, tenant, workflow, subject)
    found = _look(read_settings(), lambda connection: history.item(connection, address))
    if found is None:
        answer_is_no(f"{address}: nothing is stored (never written, forgotten or expired)")
    if json:
        show_json(_item_document(found))
        return
    show_table(None, ("", ""), [(name, _cell(value)) for name, value in _item_document(found).items()])


@memory.command("list")
def list_command(
    *,
    subject: Annotated[str | None, typer.Option(metavar="KIND[:ID]", help="Only items about it.")] = None,
    workflow: Annotated[str | None, typer.Option(help="Only private items of this workflow.")] = None,
    shared: Annotated[bool, typer.Option("--shared", help="Only shared items.")] = False,
    tenant: Tenant = DEFAULT_TENANT,
    limit: Limit = 50,
    json: Json = False,
) -> None:
    """List what is stored, in the order of addresses.

    Example: `tally memory list --subject patient:P-4711`
    """
    kind, _, subject_id = (subject or "").partition(":")
    found = _look(
        read_settings(),
        lambda connection: history.items(
            connection,
            tenant,
            scope="shared" if shared else None,
            workflow=workflow,
            kind=kind or None,
            subject_id=subject_id or None,
            limit=limit,
        ),
    )
    if json:
        show_json([_item_document(each) for each in found])
        return
    rows = [
        (i.address, str(i.version), i.type or "-", short(Raw(i.value or b"null"), 60), _until(i.expires_at))
        for i in found
    ]
    show_table(None, ("address", "version", "type", "value", "expires"), rows)


@memory.command("history")
def history_command(
    item: ItemArgument,
    *,
    subject: Subject = None,
    workflow: Workflow = None,
    tenant: Tenant = DEFAULT_TENANT,
    limit: Limit = 50,
    json: Json = False,
) -> None:
    """Show an item's versions, newest first, and who wrote each. Exit 1 when none is kept."""
    address = _address(item, tenant, workflow, subject)
    found = _look(read_settings(), lambda connection: history.versions(connection, address, limit=limit))
    if not found:
        answer_is_no(f"{address}: no version is kept (never written, forgotten or expired)")
    if json:
        show_json([_version_document(version) for version in found])
        return
    rows = [
        (
            str(v.version),
            v.type,
            "-" if v.value is None else short(Raw(v.value), 60),
            _writer(v.writer),
            _until(v.written_at),
        )
        for v in found
    ]
    show_table(address, ("version", "type", "value", "writer", "written"), rows)


@memory.command("forget")
def forget(
    item: ItemArgument,
    *,
    subject: Subject = None,
    workflow: Workflow = None,
    tenant: Tenant = DEFAULT_TENANT,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the outcome.")] = 30.0,
    json: Json = False,
) -> None:
    """Forget an item and its history. Exit 1 when there was none."""
    address = parse_address(_address(item, tenant, workflow, subject))
    existed = run(_forget(read_settings(), address, timeout))
    if json:
        show_json({"address": str(address), "existed": existed})
    else:
        say(f"{address} is forgotten" if existed else f"{address}: nothing was stored")
    if not existed:
        raise typer.Exit(1)


async def _forget(settings: Settings, address: Address, timeout_s: float) -> bool:
    subject: MemorySubject = "workflow-global" if address.kind is None else (address.kind, address.id or "")
    async with Client(settings.kafka(), source="/tally/cli", tenant=address.tenant, timeout_s=timeout_s) as client:
        outcome = await client.forget(address.key, subject=subject, scope=address.scope, workflow=address.workflow)
    return outcome.existed


@memory.command("watch")
def watch(
    item: Annotated[str | None, typer.Argument(metavar="[ADDRESS]", help="Only this item; without, all.")] = None,
    *,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Start with what is kept.")] = False,
    tenant: Tenant = DEFAULT_TENANT,
    json: Json = False,
) -> None:
    """Show changes as they happen, until Ctrl-C."""
    start: Start = "beginning" if from_beginning else "end"
    run(_watch(read_settings(), item, tenant, start, json=json))


async def _watch(settings: Settings, address: str | None, tenant: str, start: Start, *, json: bool) -> None:
    keys = None if address is None else {address.encode()}
    once = Once()
    async with Subscriber(settings.kafka(), [Topic.MEMORY_CHANGES], start=start, keys=keys) as subscriber:
        async for received in subscriber:
            if received.event is None or received.event.tenant != tenant or not once.is_new(received.event):
                continue
            if json:
                show_json_line(received.event.data)
                continue
            change = received.data
            assert isinstance(change, MemoryChanged)
            value = "" if change.change != "written" else f" = {short(change.value)}"
            say(f"{change.address}  {change.change} version {change.version}{value}")


@app.command("conflicts")
def conflicts(
    *,
    follow: Follow = False,
    limit: Limit = 20,
    tenant: Tenant = DEFAULT_TENANT,
    json: Json = False,
) -> None:
    """Show races between runs: who won, who lost, on which item, from which base.

    Example: `tally conflicts --follow`
    """
    run(_conflicts(read_settings(), tenant, limit, follow=follow, json=json))


async def _conflicts(settings: Settings, tenant: str, limit: int, *, follow: bool, json: bool) -> None:
    once = Once()
    async with Subscriber(settings.kafka(), [Topic.MEMORY_CONFLICTS], start="beginning") as subscriber:
        kept = [received async for received in subscriber.until_end()]
        # Partitions come one after the other: the broker's time brings them into one order.
        kept.sort(key=lambda received: received.record.timestamp_ms)
        mine = [each.event for each in kept if each.event is not None and each.event.tenant == tenant]
        known = [event for event in mine if once.is_new(event)]
        for event in known[-limit:]:
            _show_conflict(event, json=json)
        if not known and not json and not follow:
            say("no races yet")
        if follow:
            async for received in subscriber:
                if received.event is None or received.event.tenant != tenant or not once.is_new(received.event):
                    continue
                _show_conflict(received.event, json=json)


def _show_conflict(event: Event, *, json: bool) -> None:
    if json:
        show_json_line(event.data)
        return
    say(conflict_line(MemoryConflictDetected.model_validate(event.data)))


def _address(item: str, tenant: str, workflow: str | None, subject: str | None) -> str:
    """Return the canonical address that the arguments name. Raises `UsageError`, `Rejection`."""
    if item.count("/") == _SLASHES_OF_AN_ADDRESS and workflow is None and subject is None:
        return str(parse_address(item))
    kind, subject_id = None, None
    if subject is not None:
        kind, colon, subject_id = subject.partition(":")
        if not colon or not kind or not subject_id:
            raise UsageError(f"--subject {subject!r} should be KIND:ID, as in patient:P-4711")
    scope = "shared" if workflow is None else "workflow"
    return format_address(
        Address(tenant, "workflow" if scope == "workflow" else "shared", workflow, kind, subject_id, item)
    )


def _look(settings: Settings, question: Callable[[Connection], Awaitable[_T]]) -> _T:
    async def ask() -> _T:
        async with reading(settings) as connection:
            return await question(connection)

    return run(ask())


def _item_document(item: Item) -> dict[str, object]:
    return {
        "address": item.address,
        "type": item.type,
        "value": Raw(item.value or b"null"),
        "version": item.version,
        "writer": None if item.writer is None else Raw(item.writer),
        "written_at": _iso(item.changed_at),
        "expires_at": _iso(item.expires_at),
    }


def _version_document(version: Version) -> dict[str, object]:
    return {
        "version": version.version,
        "type": version.type,
        "value": None if version.value is None else Raw(version.value),
        "writer": None if version.writer is None else Raw(version.writer),
        "written_at": _iso(version.written_at),
    }


def _writer(writer: bytes | None) -> str:
    known = cast("JsonObject", loads(writer)) if writer else {}
    return " ".join(str(known[name]) for name in ("execution_id", "node_id", "user_id") if known.get(name)) or "-"


def _cell(value: object) -> str:
    return value if isinstance(value, str) else short(value, 10_000)


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat()


def _until(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
