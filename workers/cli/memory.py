"""`tally memory` and `tally conflicts`: durable items now, then, and as they change."""

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar, cast, get_args

import typer

from schemas.address import Address, Scope, format_address, parse_address
from schemas.errors import UsageError
from schemas.exact_json import JsonObject, loads
from schemas.memory import MemoryChanged, MemoryConflictDetected
from topics.catalog import Topic
from topics.client import Client
from topics.client import Subject as MemorySubject
from topics.subscriber import Received, Start, Subscriber
from workers.cli.app import answer_is_no, app, run
from workers.cli.conflict_view import conflict_line
from workers.cli.database import reading
from workers.cli.executions import look_at
from workers.cli.item_views import (
    ITEM_COLUMNS,
    VERSION_COLUMNS,
    change_line,
    item_document,
    item_row,
    version_document,
    version_row,
)
from workers.cli.once import Once
from workers.cli.options import DEFAULT_TENANT, Follow, Json, Limit, Tenant
from workers.cli.output import say, say_that_it_watches, short, show_json, show_json_line, show_table
from workers.logic.variables import entries
from workers.logic.variables.state import ExecutionKey
from workers.memory import history
from workers.memory.history import Place
from workers.runtime.postgres import Connection
from workers.settings import Settings, read_settings

memory = typer.Typer(no_args_is_help=True, help="Look at durable memory, forget items, watch changes.")
app.add_typer(memory, name="memory")
_T = TypeVar("_T")
_PARTS_OF_AN_ADDRESS = 6
_SCOPES = frozenset(get_args(Scope))
#: With more of them, what stands there alone is rather an address that lacks a part.
_PARTS_OF_A_PLAIN_KEY = 3

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
        show_json(item_document(found))
        return
    show_table(None, ("", ""), [(name, _cell(value)) for name, value in item_document(found).items()])


@memory.command("list")
def list_command(
    *,
    subject: Annotated[str | None, typer.Option(metavar="KIND[:ID]", help="Only items about it.")] = None,
    workflow: Annotated[str | None, typer.Option(help="Only private items of this workflow.")] = None,
    shared: Annotated[bool, typer.Option("--shared", help="Only shared items.")] = False,
    of_all: Annotated[bool, typer.Option("--global", help="Only workflow-global items.")] = False,
    execution: Annotated[
        str | None,
        typer.Option(help="Only what this run has at hand: items of its subjects, and its workflow's global ones."),
    ] = None,
    tenant: Tenant = DEFAULT_TENANT,
    limit: Limit = 50,
    json: Json = False,
) -> None:
    """List what is stored, in the order of addresses: value, version, type, who wrote it and when, expiry.

    Example: `tally memory list --subject patient:P-4711` · `tally memory list --execution run-lab-40`
    """
    settings = read_settings()
    if execution is None:
        places = [_place(subject, workflow, shared=shared, of_all=of_all)]
    elif subject or workflow or shared or of_all:
        raise UsageError("--execution says whose items are meant; leave out the other options")
    else:
        places = run(_places_of(settings, ExecutionKey(tenant, execution)))
    found = _look(settings, lambda connection: history.items(connection, tenant, places, limit=limit))
    if json:
        show_json([item_document(each) for each in found])
        return
    if not found:
        say(f"nothing of that kind is stored in tenant {tenant!r}")
        return
    show_table(None, ITEM_COLUMNS, map(item_row, found))


def _place(subject: str | None, workflow: str | None, *, shared: bool, of_all: bool) -> Place:
    if shared and workflow is not None:
        raise UsageError("--shared and --workflow exclude each other: shared items belong to no workflow")
    if of_all and subject is not None:
        raise UsageError("--global and --subject exclude each other: workflow-global items are about nobody")
    kind, _, subject_id = (subject or "").partition(":")
    if subject is not None and not kind:
        raise UsageError(f"--subject {subject!r} should be KIND or KIND:ID, as in patient or patient:P-4711")
    about = (kind, subject_id or None) if kind else None
    scope: Scope | None = "shared" if shared else "workflow" if workflow is not None else None
    return Place(scope, workflow, "workflow-global" if of_all else about)


async def _places_of(settings: Settings, key: ExecutionKey) -> list[Place]:
    _, store = await look_at(settings, key, None)
    said = store.entries.get(entries.META)
    if said is None:
        answer_is_no(f"{key.execution_id} has not been started, so its workflow and subjects are not known")
    meta = cast("JsonObject", loads(said))
    subjects = [(str(each["kind"]), str(each["id"])) for each in cast("list[JsonObject]", meta.get("subjects") or [])]
    return history.at_hand(str(cast("JsonObject", meta["workflow"])["name"]), subjects)


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
        show_json([version_document(version) for version in found])
        return
    show_table(address, VERSION_COLUMNS, map(version_row, found))


@memory.command("forget")
def forget(
    item: ItemArgument,
    *,
    subject: Subject = None,
    workflow: Workflow = None,
    tenant: Tenant = DEFAULT_TENANT,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for the outcome.")] = 30.0,
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
    keys = None if address is None else {str(parse_address(address)).encode()}
    once = Once()
    async with Subscriber(settings.kafka(), [Topic.MEMORY_CHANGES], start=start, keys=keys) as subscriber:
        say_that_it_watches("all items" if address is None else address)
        async for received in subscriber:
            if _is_news(received, tenant, once):
                _show(received, json=json)


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
        known = [received for received in kept if _is_news(received, tenant, once)]
        for received in known[-limit:]:
            _show(received, json=json)
        if not known and not json and not follow:
            say("no races yet")
        if follow:
            say_that_it_watches("for races")
            async for received in subscriber:
                if _is_news(received, tenant, once):
                    _show(received, json=json)


def _is_news(received: Received, tenant: str, once: Once) -> bool:
    return received.event is not None and received.event.tenant == tenant and once.is_new(received.event)


def _show(received: Received, *, json: bool) -> None:
    event, data = received.event, received.data
    assert event is not None
    if json:
        show_json_line(event.data)
    elif isinstance(data, MemoryChanged):
        say(change_line(data))
    else:
        assert isinstance(data, MemoryConflictDetected)
        say(conflict_line(data, received.record.time))


def _address(item: str, tenant: str, workflow: str | None, subject: str | None) -> str:
    """Return the canonical address that the arguments name. Raises `UsageError`, `Rejection`."""
    options = [name for name, value in (("--workflow", workflow), ("--subject", subject)) if value is not None]
    parts = item.split("/")
    if len(parts) == _PARTS_OF_AN_ADDRESS and not options:
        return str(parse_address(item))
    if len(parts) == _PARTS_OF_AN_ADDRESS and parts[1] in _SCOPES:
        raise UsageError(f"{item!r} is an address, which says it all; leave out {' and '.join(options)}")
    if _SCOPES.intersection(parts[:2]) or (len(parts) > _PARTS_OF_A_PLAIN_KEY and not options):
        raise UsageError(
            f"{item!r} has {len(parts)} of the {_PARTS_OF_AN_ADDRESS} parts of an address, "
            "tenant/scope/workflow/kind/id/key with - for what is absent; a key with slashes in it is written with %2F "
            "there, see `tally memory list`"
        )
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


def _cell(value: object) -> str:
    return value if isinstance(value, str) else short(value, 10_000)
