"""`tally execution`: any store at any revision, what read and wrote a path, differences, forks."""

from collections.abc import AsyncIterator
from datetime import datetime
from enum import StrEnum
from typing import Annotated, cast
from uuid import uuid4

import typer

from schemas.errors import UsageError
from schemas.exact_json import JsonObject
from workers.cli.app import answer_is_no, app, run
from workers.cli.database import reading
from workers.cli.differences import differences
from workers.cli.forks import fork_event, publish_fork
from workers.cli.options import DEFAULT_TENANT, Json, Limit, Tenant
from workers.cli.output import pretty, say, short, show_json, show_table
from workers.cli.revision_views import revision_document, show_revisions, touches_of
from workers.cli.store_view import store_document
from workers.logic.memory.timestamps import timestamp
from workers.logic.variables.state import ExecutionKey
from workers.runtime.postgres import Connection
from workers.settings import Settings, read_settings
from workers.variables import history
from workers.variables.history import ExecutionSummary, RevisionDetail, StoreAt

execution = typer.Typer(no_args_is_help=True, help="Look into the variable stores of executions.")
app.add_typer(execution, name="execution")
Id = Annotated[str, typer.Argument(metavar="EXECUTION", help="The execution's id.")]
At = Annotated[int | None, typer.Option("--at", min=1, metavar="REVISION", help="As it was after this revision.")]
_PAGE = 500


class Status(StrEnum):
    """What a run may be."""

    OPEN = "open"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@execution.command("list")
def list_command(
    *,
    tenant: Tenant = DEFAULT_TENANT,
    status: Annotated[Status | None, typer.Option(help="Only runs that are so.")] = None,
    workflow: Annotated[str | None, typer.Option(help="Only runs of this workflow.")] = None,
    limit: Limit = 50,
    json: Json = False,
) -> None:
    """List executions, newest first."""
    settings = read_settings()
    found = run(_list(settings, tenant, status, workflow, limit))
    if json:
        show_json([_described(summary) for summary in found])
        return
    if not found:
        say("there are no such executions" if status or workflow else f"there are no executions in tenant {tenant!r}")
        return
    rows = [
        (s.key.execution_id, s.workflow or "-", s.status, str(s.revision), _time(s.started_at), _time(s.ended_at))
        for s in found
    ]
    show_table(None, ("execution", "workflow", "status", "revision", "started", "ended"), rows)


async def _list(
    settings: Settings, tenant: str, status: str | None, workflow: str | None, limit: int
) -> list[ExecutionSummary]:
    async with reading(settings) as connection:
        return await history.list_executions(connection, tenant, status=status, workflow=workflow, limit=limit)


@execution.command("show")
def show(execution_id: Id, *, at: At = None, tenant: Tenant = DEFAULT_TENANT, json: Json = False) -> None:
    """Show a store: every variable, at the newest revision or `--at` any earlier one. Exit 1 when there is none.

    With what is outstanding and what that waits for; which activities failed and why; the output, error or reason
    of a run that has ended; and what a simulation would have changed in memory.

    Example: `tally execution show case-891 --at 3`
    """
    settings = read_settings()
    summary, store = run(look_at(settings, ExecutionKey(tenant, execution_id), at))
    document = {**_described(summary), "at": store.revision, **store_document(summary.key, store)}
    if json:
        show_json(document)
        return
    say(f"{execution_id}  {summary.workflow or '-'}  {summary.status}  revision {store.revision} of {summary.revision}")
    for name in (
        "forked_from",
        "variables",
        "scratchpad",
        "outstanding",
        "failures",
        "output",
        "error",
        "reason",
        "effects",
    ):
        if document.get(name) not in (None, {}, []):
            say(name, "bold")
            say(pretty(document[name]))


@execution.command("history")
def history_command(
    execution_id: Id, *, tenant: Tenant = DEFAULT_TENANT, limit: Limit = 200, json: Json = False
) -> None:
    """Show an execution's revisions: which event made each, what it read, what it wrote, what failed and why."""
    settings = read_settings()
    found = run(revisions_of(settings, ExecutionKey(tenant, execution_id), limit))
    if json:
        show_json([revision_document(revision) for revision in found])
        return
    show_revisions(found)


@execution.command("reads")
def reads(
    execution_id: Id,
    path: Annotated[str, typer.Argument(help="A path such as risk.score; what lies above and below counts too.")],
    *,
    tenant: Tenant = DEFAULT_TENANT,
    json: Json = False,
) -> None:
    """Show who read a path and who wrote it, revision by revision. Exit 1 when nobody did.

    Example: `tally execution reads case-891 last_step`
    """
    settings = read_settings()
    found = run(revisions_of(settings, ExecutionKey(tenant, execution_id), None))
    touches = [touch for revision in found for touch in touches_of(revision, path)]
    if json:
        show_json(touches)
    elif touches:
        rows = [
            (
                str(t["revision"]),
                str(t["event"]),
                str(t["node"] or "-"),
                str(t["how"]),
                str(t["path"]),
                short(t["value"]) if "value" in t else "",
            )
            for t in touches
        ]
        show_table(None, ("rev", "event", "node", "", "path", "value"), rows)
    if not touches:
        answer_is_no(f"no revision of {execution_id} read or wrote {path}; see `tally execution show {execution_id}`")


@execution.command("diff")
def diff(
    a: Annotated[str, typer.Argument(metavar="A[@REVISION]", help="An execution, or one at a revision.")],
    b: Annotated[str, typer.Argument(metavar="B[@REVISION]", help="The one to compare it with.")],
    *,
    tenant: Tenant = DEFAULT_TENANT,
    json: Json = False,
) -> None:
    """Show how two stores differ: two executions, or one at two revisions.

    Example: `tally execution diff case-891@3 case-891@5`
    """
    settings = read_settings()
    before, after = run(_stores(settings, [_at_revision(tenant, a), _at_revision(tenant, b)]))
    changes = differences(before, after)
    if json:
        show_json([{"path": path, "a": old, "b": new} for path, old, new in changes])
        return
    if not changes:
        say(f"{a} and {b} hold the same")
        return
    rows = [
        (path, short(old) if old is not None else "", short(new) if new is not None else "")
        for path, old, new in changes
    ]
    show_table(None, ("path", a, b), rows)


@execution.command("fork")
def fork(
    execution_id: Id,
    *,
    at: Annotated[int, typer.Option("--at", min=1, metavar="REVISION", help="The last revision that it begins with.")],
    new_id: Annotated[str | None, typer.Option("--as", metavar="ID", help="The new execution's id.")] = None,
    tenant: Tenant = DEFAULT_TENANT,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for a worker.")] = 30.0,
    json: Json = False,
) -> None:
    """Start a new execution that begins with this one's first revisions. Exit 1 when the new id exists already.

    Example: `tally execution fork due-diligence-7 --at 3 --as due-diligence-7b`
    """
    settings = read_settings()
    source = ExecutionKey(tenant, execution_id)
    name = new_id or f"{execution_id}-fork-{uuid4().hex[:8]}"
    run(_fork(settings, source, at, name, timeout))
    if json:
        show_json({"execution_id": name, "forked_from": {"execution_id": execution_id, "revision": at}})
    else:
        say(f"{name} begins with revisions 1 to {at} of {execution_id}")


async def _fork(settings: Settings, source: ExecutionKey, at: int, name: str, timeout_s: float) -> None:
    async with reading(settings) as connection:
        summary, store = await _summary_and_store(connection, source, at)
        if await history.execution(connection, ExecutionKey(source.tenant, name)) is not None:
            answer_is_no(f"{name} exists already; give another id with --as")
    variables = cast("JsonObject", store_document(source, store)["variables"])
    await publish_fork(settings, fork_event(source, name, summary, store, variables), timeout_s)


async def look_at(settings: Settings, key: ExecutionKey, at: int | None) -> tuple[ExecutionSummary, StoreAt]:
    """Return an execution and its store after a revision, the newest without one. Exit 1 when there is none."""
    async with reading(settings) as connection:
        return await _summary_and_store(connection, key, at)


async def _summary_and_store(
    connection: Connection, key: ExecutionKey, at: int | None
) -> tuple[ExecutionSummary, StoreAt]:
    summary = await history.execution(connection, key)
    if summary is None:
        answer_is_no(f"no execution {key.execution_id!r} in tenant {key.tenant!r}; see `tally execution list`")
    store = await history.store_at(connection, key, at)
    if store is None:
        answer_is_no(f"{key.execution_id} has no revision {at}; it has 1 to {summary.revision}")
    return summary, store


async def _stores(settings: Settings, wanted: list[tuple[ExecutionKey, int | None]]) -> list[JsonObject]:
    async with reading(settings) as connection:
        found: list[JsonObject] = []
        for key, at in wanted:
            _, store = await _summary_and_store(connection, key, at)
            found.append(cast("JsonObject", store_document(key, store)["variables"]))
        return found


async def revisions_of(settings: Settings, key: ExecutionKey, limit: int | None) -> list[RevisionDetail]:
    """Return an execution's revisions, oldest first. Exit 1 when there are none."""
    async with reading(settings) as connection:
        found = [revision async for revision in _all_revisions(connection, key, limit)]
    if not found:
        answer_is_no(f"no execution {key.execution_id!r} in tenant {key.tenant!r}; see `tally execution list`")
    return found


async def _all_revisions(connection: Connection, key: ExecutionKey, limit: int | None) -> AsyncIterator[RevisionDetail]:
    last = 0
    while limit is None or last < limit:
        size = _PAGE if limit is None else min(_PAGE, limit - last)
        page = await history.revisions(connection, key, after=last, limit=size)
        for revision in page:
            yield revision
        if len(page) < size:
            return
        last = page[-1].revision


def _at_revision(tenant: str, text: str) -> tuple[ExecutionKey, int | None]:
    execution_id, at, revision = text.rpartition("@")
    if not at:
        return ExecutionKey(tenant, text), None
    if not revision.isdigit() or int(revision) == 0:
        raise UsageError(f"{text!r} should be EXECUTION@REVISION, as in case-891@3")
    return ExecutionKey(tenant, execution_id), int(revision)


def _described(summary: ExecutionSummary) -> dict[str, object]:
    return {
        "execution_id": summary.key.execution_id,
        "tenant": summary.key.tenant,
        "workflow": summary.workflow,
        "status": summary.status,
        "revision": summary.revision,
        "parent_execution_id": summary.parent_execution_id,
        "started_at": None if summary.started_at is None else timestamp(summary.started_at),
        "ended_at": None if summary.ended_at is None else timestamp(summary.ended_at),
    }


def _time(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"
