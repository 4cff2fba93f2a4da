"""What a run's writes say that it has seen: else a lost update could go unreported, and nobody would ever know."""

from collections.abc import Sequence

from schemas.exact_json import JsonValue
from tests.support.checker.commands import Answered
from tests.support.checker.verdict import Verdict
from tests.support.history import History, event_of
from topics.catalog import Topic
from workers.logic.variables.step import SOURCE

_WRITES = {"memory.write", "memory.update"}
_SEEN = {"memory.found", "memory.missing", "memory.written", "memory.updated"}


def check_read_versions(history: History, answered: Sequence[Answered]) -> Verdict:
    """Compare each write's `read_version` with the last outcome that its run had there; in the order of the log.

    A run has one command under way at an address. What a fork has seen before its own first outcome, its source saw.
    """
    verdict = Verdict()
    forks = {
        (event.tenant, event.subject)
        for topic in (Topic.EXECUTION_EVENTS, Topic.ACTIVITY_OUTPUTS)
        for record in history.log(topic)
        if (event := event_of(record)) is not None and event.data.get("forked_from")
    }
    seen: dict[tuple[str, str | None, str | None], JsonValue] = {}
    for each in answered:
        event = each.command.event
        if event.source != SOURCE:
            continue
        place = event.tenant, event.subject, each.command.address
        if event.type in _WRITES and (place in seen or place[:2] not in forks):
            verdict.counts["writes by runs"] += 1
            said = event.data.get("read_version")
            if said != seen.get(place):
                verdict.add("read_version_wrong", each.name, f"it says {said}, its run has seen {seen.get(place)}")
        if each.outcome.type in _SEEN:
            seen[place] = each.outcome.data["version"]
    return verdict
