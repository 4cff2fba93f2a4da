"""`memory.changed`: one event for each change, and the compacted topic ends with the newest state of every item."""

from collections import defaultdict

from schemas.exact_json import canonical, loads
from tests.support.checker.verdict import Verdict
from tests.support.history import History, ItemRow, event_of
from topics.catalog import Topic
from topics.records import ReceivedRecord


def check_changes(history: History) -> Verdict:
    """Check the changes of every item against its row."""
    verdict = Verdict()
    by_address: defaultdict[str, list[ReceivedRecord]] = defaultdict(list)
    for record in history.log(Topic.MEMORY_CHANGES):
        by_address[(record.key or b"").decode()].append(record)
    rows = {row.address: row for row in history.items if row.sequence}
    for address in rows.keys() - by_address.keys():
        verdict.add("published_missing", address, "the item changed, memory-changes has nothing of it")
    for address, records in by_address.items():
        row = rows.get(address)
        if row is None:
            verdict.add("published_uncommitted", address, "memory-changes shows an item that is not stored")
        else:
            _check_one(row, records, verdict)
    return verdict


def _check_one(row: ItemRow, records: list[ReceivedRecord], verdict: Verdict) -> None:
    values: defaultdict[int, set[bytes | None]] = defaultdict(set)
    for record in records:
        event = event_of(record)
        if event is not None:
            values[int(str(event.data["sequence"]))].add(record.value)
    verdict.counts["changes"] += len(values)
    for sequence, copies in values.items():
        if len(copies) > 1:
            verdict.add("published_changed", row.address, f"change {sequence} was published as {len(copies)} events")
    newest = max(values)
    if newest != row.sequence:
        verdict.add("published_missing", row.address, f"change {row.sequence} is stored, {newest} was published last")
    else:
        _check_last(row, records[-1], values[newest], verdict)


def _check_last(row: ItemRow, last: ReceivedRecord, newest: set[bytes | None], verdict: Verdict) -> None:
    """The newest record of a key is what compaction keeps."""
    if row.value is None:
        if last.value is not None:
            verdict.add("published_stale", row.address, "the item is gone, the topic does not end with a tombstone")
        return
    if last.value not in newest:
        verdict.add("published_stale", row.address, "the topic ends with an older state")
        return
    event = event_of(last)
    assert event is not None, "its value is that of a change"
    if canonical(event.data["value"]) != canonical(loads(row.value)):
        verdict.add("published_changed", row.address, "the newest change has another value than the row")
