"""At rest everything is read: what is applied, what is committed to the group and the end of the log are one."""

from tests.support.checker.verdict import Verdict
from tests.support.history import History
from topics.catalog import Topic

READ_BY = {
    "variables": (Topic.EXECUTION_EVENTS, Topic.ACTIVITY_OUTPUTS, Topic.MEMORY_RESULTS),
    "memory": (Topic.MEMORY_COMMANDS,),
}


def check_positions(history: History) -> Verdict:
    """Compare positions, and look for acknowledged events that no log holds."""
    verdict = Verdict()
    for worker, topics in READ_BY.items():
        for (topic, partition), end in history.log_ends.items():
            if topic not in topics or not end:
                continue
            place = worker, topic, partition
            applied, committed = history.applied.get(place), history.committed.get(place)
            if not applied == committed == end:
                verdict.add(
                    "position_wrong",
                    f"{worker}: {topic.value}/{partition}",
                    f"applied to {applied}, committed to {committed}, the log ends at {end}",
                )
    logged = {(topic, record.value) for topic, records in history.logs.items() for record in records}
    for topic, value in history.acknowledged:
        if (topic, value) not in logged:
            verdict.add("acknowledged_but_lost", topic.value, f"no log holds {value[:200]!r}")
    verdict.counts["acknowledged events"] += len(history.acknowledged)
    return verdict
