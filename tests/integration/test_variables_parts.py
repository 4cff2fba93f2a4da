"""One output sets hundreds of requests free, each with a copy of it: every one is answered once, whoever is killed."""

from pathlib import Path

from schemas.envelope import Event
from tests.support.edge import Edge, assert_table_is_right_or_behind, assert_whole, completed, event, started
from topics.catalog import Topic

REQUESTS = 300
TEXT = "x" * 400_000
#: The copies alone have 120 MB; a worker holds a part of them, a few times over.
_MOST_MEMORY_KB = 600_000


def scheduled(activity_id: str, **inputs: str) -> Event:
    return event("run", "activity.scheduled", {"activity_id": activity_id, "inputs": inputs}, activity_id)


def most_memory_kb(process_id: int) -> int:
    status = Path(f"/proc/{process_id}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


async def test_what_one_output_sets_free_is_answered_once_over_any_kill(variables: Edge) -> None:
    names = [f"reader-{number}" for number in range(REQUESTS)]
    events = [started("run"), scheduled("big"), *(scheduled(name, text="{{big.text}}") for name in names)]
    await variables.publish(events)
    await variables.start_worker()
    await variables.drained()
    await variables.workers[0].stop()
    output = completed("run", "big", text=TEXT)
    # Between topics there is no order: after a kill this may come first.
    later = event("run", "variables.set", {"variables": {"later": 1}})
    await variables.publish([output])
    for point in ("after_commit:3", "after_publish:2", "before_commit:2"):
        killed = await variables.start_worker(crash_at=point)
        assert await killed.exit_code() == 137
    await variables.publish([later], Topic.ACTIVITY_OUTPUTS)
    last = await variables.start_worker()
    await variables.drained()

    peak = most_memory_kb(last.process.pid)
    await assert_whole(variables, [*events, output, later])
    assert await assert_table_is_right_or_behind(variables) == 1
    answers = {record.event.id: record.event.data for record in await variables.read(Topic.NODE_RESULTS)}
    ready = [data for data in answers.values() if data["activity_id"] != "big"]
    assert [data["activity_id"] for data in ready] == names
    assert all(data["inputs"] == {"text": TEXT} for data in ready)
    async with variables.database() as connection:
        largest = await connection.fetchval("SELECT max(octet_length(outgoing)) FROM revisions")
        print(f"{peak / 1000:.0f} MB at most; the largest revision sends {largest / 1e6:.1f} MB")
    assert largest < 18_000_000
    assert peak < _MOST_MEMORY_KB
