"""Revisions as people and programs read them: what made each, what it read, what it wrote."""

from collections.abc import Sequence
from typing import cast

from schemas.exact_json import JsonObject, JsonValue, loads
from schemas.registry import OUTCOME_TYPES
from topics.catalog import Topic
from topics.codec import decode
from workers.cli.output import show_table
from workers.logic.memory.timestamps import timestamp
from workers.logic.variables import entries
from workers.logic.variables.updates import public_writes
from workers.variables.history import RevisionDetail

#: What is told of an answer besides its type.
_SAID = ("node_id", "iteration", "code", "message")
_SET_BY_START = frozenset({"input", "system", "event"})


def show_revisions(revisions: Sequence[RevisionDetail]) -> None:
    """Write revisions as a table; its last column is there where a node failed or was skipped."""
    columns = ("rev", "event", "node", "read", "wrote", "not done")
    rows = [_revision_row(revision) for revision in revisions]
    width = len(columns) if any(row[-1] for row in rows) else len(columns) - 1
    show_table(None, columns[:width], [row[:width] for row in rows])


def revision_document(revision: RevisionDetail) -> dict[str, object]:
    """Return a revision as JSON."""
    return {
        "revision": revision.revision,
        "inherited": revision.event_key is None,
        "applied_at": timestamp(revision.applied_at),
        **revision.body,
        "writes": _writes(revision),
        "answers": _answers(revision),
        "failures": _failures(revision),
    }


def _revision_row(revision: RevisionDetail) -> tuple[str, ...]:
    cause = cast("JsonObject", revision.body["cause"])
    found = cast("list[JsonObject]", revision.body["reads"])
    read = [str(r["path"]) if r.get("found") else f"{r['path']} (null)" for r in found]
    wrote = [
        f"{write['frame']} {write['path']}" if "frame" in write else str(write["path"]) for write in _writes(revision)
    ]
    marks = (" inherited" if revision.event_key is None else "", " late" if revision.body.get("late") else "")
    return (
        f"{revision.revision}{''.join(marks)}",
        str(cause["type"]),
        _reader(revision) or "-",
        ", ".join(read),
        ", ".join(wrote),
        ", ".join(
            [
                *(_not_done(answer) for answer in _answers(revision) if "code" in answer),
                *(_failed(failure) for failure in _failures(revision)),
            ]
        ),
    )


def _answers(revision: RevisionDetail) -> list[JsonObject]:
    """Return what nodes were answered by a revision: type, node, loop indexes, and the code where one was not done."""
    found: list[JsonObject] = []
    for record in revision.outgoing:
        if record.topic is Topic.NODE_RESULTS and record.value is not None:
            event = decode(record.value, record.headers)
            said: JsonObject = {name: event.data[name] for name in _SAID if name in event.data}
            found.append({"type": event.type, **said})
    return found


def _reader(revision: RevisionDetail) -> str | None:
    """Return the node that a revision is about: its event's, else (an outcome names none) the one it answered."""
    cause = cast("JsonObject", revision.body["cause"])
    if cause.get("activity_id") or cause.get("node_id"):
        return _node(cause)
    answers = _answers(revision) if cause["type"] in OUTCOME_TYPES else []
    return _node(answers[0]) if answers else None


def _node(named: JsonObject) -> str:
    """Return a node with the iterations around it, as in `items[2] check`."""
    around = cast("list[JsonObject]", named.get("iteration") or [])
    loops = [f"{loop['node_id']}[{loop['index']}]" for loop in around]
    return " ".join([*loops, str(named.get("activity_id") or named["node_id"])])


def _not_done(answer: JsonObject) -> str:
    how = str(answer["type"]).removeprefix("node.")
    return f"{_node(answer)} {how}: {answer['code']}"


def _failures(revision: RevisionDetail) -> list[JsonObject]:
    """Return the activities that a revision says failed, and why; a fork's start only repeats its source's."""
    return [] if _starts_fork(revision) else entries.failures(revision.changes)


def _failed(failure: JsonObject) -> str:
    node = " ".join(str(failure[name]) for name in ("frame", "node_id") if name in failure)
    said = ": ".join(str(failure[name]) for name in ("code", "message") if name in failure)
    return f"{node} failed: {said}"


def touches_of(revision: RevisionDetail, path: str) -> list[dict[str, JsonValue]]:
    """Return how a revision read or wrote a path, or what lies above or below it; only what was written has a value."""
    cause = cast("JsonObject", revision.body["cause"])
    node = _reader(revision)
    base: dict[str, JsonValue] = {"revision": revision.revision, "event": cause["type"], "node": node}
    touches: list[dict[str, JsonValue]] = []
    for read in cast("list[JsonObject]", revision.body["reads"]):
        if _related(str(read["path"]), path):
            how = "read" if read.get("found") else "read, not there"
            touches.append({**base, "node": read.get("node_id") or node, "how": how, "path": read["path"]})
    for write in _writes(revision):
        if _related(str(write["path"]), path):
            how = "removed" if write.get("removed") else "wrote"
            value: JsonObject = {} if write.get("removed") else {"value": write.get("value")}
            touches.append({**base, "how": how, "path": write["path"], **value})
    return touches


def _related(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def _writes(revision: RevisionDetail) -> list[JsonObject]:
    """Return the variables that a revision set; of a fork's start not those that it only took over."""
    writes = cast("list[JsonObject]", public_writes(revision.changes))
    if not _starts_fork(revision):
        return writes
    return [write for write in writes if str(write["path"]) in _SET_BY_START]


def _starts_fork(revision: RevisionDetail) -> bool:
    meta = revision.changes.get(entries.META)
    return meta is not None and "forked_from" in cast("JsonObject", loads(meta))
