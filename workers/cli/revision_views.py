"""Revisions as people and programs read them: what made each, what it read, what it wrote."""

from collections.abc import Sequence
from typing import cast

from schemas.exact_json import JsonObject, JsonValue
from workers.cli.output import show_table
from workers.logic.variables.updates import public_writes
from workers.variables.history import RevisionDetail


def show_revisions(revisions: Sequence[RevisionDetail]) -> None:
    """Write revisions as a table."""
    columns = ("rev", "event", "node", "read", "wrote")
    show_table(None, columns, [_revision_row(revision) for revision in revisions])


def revision_document(revision: RevisionDetail) -> dict[str, object]:
    """Return a revision as JSON."""
    return {
        "revision": revision.revision,
        "applied_at": revision.applied_at.isoformat(),
        **revision.body,
        "writes": _writes(revision),
    }


def _revision_row(revision: RevisionDetail) -> tuple[str, ...]:
    cause = cast("JsonObject", revision.body["cause"])
    found = cast("list[JsonObject]", revision.body["reads"])
    read = [str(r["path"]) if r.get("found") else f"{r['path']} (null)" for r in found]
    wrote = [str(write["path"]) for write in _writes(revision)]
    late = " late" if revision.body.get("late") else ""
    return (
        f"{revision.revision}{late}",
        str(cause["type"]),
        str(cause.get("activity_id") or cause.get("node_id") or "-"),
        ", ".join(read),
        ", ".join(wrote),
    )


def touches_of(revision: RevisionDetail, path: str) -> list[dict[str, JsonValue]]:
    """Return how a revision read or wrote a path, or what lies above or below it."""
    cause = cast("JsonObject", revision.body["cause"])
    node = cause.get("activity_id") or cause.get("node_id")
    base: dict[str, JsonValue] = {"revision": revision.revision, "event": cause["type"], "node": node}
    touches: list[dict[str, JsonValue]] = []
    for read in cast("list[JsonObject]", revision.body["reads"]):
        if _related(str(read["path"]), path):
            how = "read" if read.get("found") else "read, not there"
            touches.append(
                {**base, "node": read.get("node_id") or node, "how": how, "path": read["path"], "value": None}
            )
    for write in _writes(revision):
        if _related(str(write["path"]), path):
            how = "removed" if write.get("removed") else "wrote"
            touches.append({**base, "how": how, "path": write["path"], "value": write.get("value")})
    return touches


def _related(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def _writes(revision: RevisionDetail) -> list[JsonObject]:
    return cast("list[JsonObject]", public_writes(revision.changes))
