"""A conflict event if and only if there was a race, and what it says of it."""

from collections.abc import Mapping

from schemas.exact_json import JsonObject, JsonValue, canonical, loads
from tests.support.checker.commands import Answered
from tests.support.checker.linearizability import NOTHING, UNKNOWN
from tests.support.checker.verdict import Verdict
from workers.logic.memory.commands import Update, Write


def check_no_conflict(verdict: Verdict, each: Answered) -> None:
    """Reads and accepted removals race with nobody."""
    if each.conflict is not None:
        verdict.add("conflict_unexplained", each.name, f"{each.outcome.type} came with a conflict event")


def check_conflict(
    verdict: Verdict,
    each: Answered,
    made: int,
    replaced: int,
    previous: Answered | None,
    values: Mapping[int, bytes],
) -> int:
    """Check the conflict event of a write, update or refused command, or that there rightly is none.

    `made` is the version it made (`UNKNOWN` when it was refused), `replaced` the live version that it met as far
    as known, `previous` who made the version before. Returns what is known of `replaced` afterwards: a lost update
    proves that there was a value, its absence where one was due that there was none.
    """
    expected = _race(each, made, replaced, previous, values)
    if each.conflict is None:
        if expected == "lost_update":
            if replaced != UNKNOWN:
                verdict.add("lost_update_unreported", each.name, f"version {replaced} was replaced unseen")
            return NOTHING
        if expected is not None:
            verdict.add("conflict_missing", each.name, f"{each.outcome.type} without a conflict event")
        return replaced
    verdict.counts[f"conflicts: {each.conflict.data['kind']}"] += 1
    if expected is None:
        verdict.add("conflict_unexplained", each.name, f"{each.outcome.type} came with a conflict event")
        return replaced
    found = made - 1 if made != UNKNOWN else replaced
    _check_content(verdict, each, expected, found, values)
    return found


def _race(
    each: Answered, made: int, replaced: int, previous: Answered | None, values: Mapping[int, bytes]
) -> str | None:
    """Return which conflict event is due: None, or its kind; of an unknown `replaced` the race is assumed."""
    if each.outcome.type == "memory.conflicted" or each.outcome.data.get("merged"):
        return "conditional_write"
    request = each.command.request
    if not isinstance(request, (Write, Update)) or request.expected is not None or request.read_version is None:
        return None
    if replaced == NOTHING or previous is None or not request.read_version < made - 1:
        return None
    mine = _execution(each)
    if mine is not None and mine == _execution(previous):
        return None
    if isinstance(request, Update) and not _patched_unseen(each, request, made - 1, values):
        return None
    return "lost_update"


def _patched_unseen(each: Answered, request: Update, replaced: int, values: Mapping[int, bytes]) -> bool:
    """Tell whether a merge patch set members that were other ones than its writer knew; believed where unknown."""
    assert request.read_version is not None
    told = each.conflict is not None
    base = {} if request.read_version == 0 else loads(values.get(request.read_version, b"null"))
    forgotten = told and each.conflict is not None and each.conflict.data["base"] is None
    if forgotten or base is None or replaced not in values:
        return told
    return _differs(request.operand, base, loads(values[replaced]))


def _differs(patch: JsonValue, base: JsonValue, current: JsonValue) -> bool:
    if isinstance(patch, dict) and isinstance(base, dict) and isinstance(current, dict):
        return any(_member_differs(patch[name], name, base, current) for name in patch)
    return canonical(base) != canonical(current)


def _member_differs(patch: JsonValue, name: str, base: JsonObject, current: JsonObject) -> bool:
    if isinstance(patch, dict) and name not in base and isinstance(current.get(name), dict):
        return _differs(patch, {}, current[name])
    if (name in base) != (name in current):
        return True
    return name in base and _differs(patch, base[name], current[name])


def _execution(each: Answered) -> JsonValue:
    writer = loads(each.command.writer)
    return writer.get("execution_id") if isinstance(writer, dict) else None


def _check_content(verdict: Verdict, each: Answered, kind: str, found: int, values: Mapping[int, bytes]) -> None:
    assert each.conflict is not None
    data = each.conflict.data
    request = each.command.request
    expected = request.read_version if kind == "lost_update" else request.expected  # type: ignore[union-attr]
    merged = bool(each.outcome.data.get("merged"))
    resolution = "overwritten" if kind == "lost_update" else "merged" if merged else "rejected"
    said = (data["kind"], data["resolution"], data["expected_version"], data["current_version"], data["address"])
    due = (kind, resolution, expected, found, each.command.address)
    if said != due:
        verdict.add("conflict_wrong", each.name, f"it says {said}, due is {due}")
        return
    for side, version in (("base", expected), ("current", found)):
        shown = data[side]
        if isinstance(shown, dict) and "value_sha256" not in shown and version in values:
            _check_side(verdict, each, side, shown, int(str(version)), values)
    attempted = data["attempted"]
    if not isinstance(request, Write) or not isinstance(attempted, dict) or "value_sha256" in attempted:
        return
    if canonical(attempted["value"]) != canonical(request.value):
        verdict.add("conflict_wrong", each.name, "the attempted value is not the command's")


def _check_side(
    verdict: Verdict, each: Answered, side: str, shown: JsonObject, version: int, values: Mapping[int, bytes]
) -> None:
    if shown.get("version") != version or canonical(shown.get("value")) != values[version]:
        verdict.add("conflict_wrong", each.name, f"its {side} is not version {version}")
