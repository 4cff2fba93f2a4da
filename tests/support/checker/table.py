"""The table's changelog: what a worker would trust after a recovery is what is committed.

An entry may be behind (its worker was killed between the commit and the changelog): its head says so, and the
execution is rebuilt when it is needed. One that passes for current and is not would be a wrong answer.
"""

from collections.abc import Mapping

from tests.support.checker.executions import Modelled
from tests.support.checker.verdict import Verdict
from tests.support.history import History
from topics.catalog import Topic
from workers.logic.variables.state import ExecutionKey, Head
from workers.variables.table import LiveExecution, recover


def check_table(history: History, models: Mapping[ExecutionKey, Modelled]) -> Verdict:
    """Fold the changelog as a recovery does and compare what it trusts with the model."""
    verdict = Verdict()
    partitions: dict[int, dict[ExecutionKey, LiveExecution]] = {}
    for record in history.log(Topic.EXECUTIONS_TABLE):
        if record.key is not None:
            recover(partitions.setdefault(record.partition, {}), record.key, record.value)
    for executions in partitions.values():
        for key, live in executions.items():
            _check_one(key, live, models.get(key), verdict)
    return verdict


def _check_one(key: ExecutionKey, live: LiveExecution, model: Modelled | None, verdict: Verdict) -> None:
    name = f"execution {key.tenant}/{key.execution_id}"
    if model is None or model.head is None:
        verdict.add("table_wrong", name, "the table holds an execution that is not committed")
        return
    committed = Head.from_json(model.head).revision
    if live.revision > committed:
        verdict.add("table_wrong", name, f"the table is at revision {live.revision}, {committed} is committed")
    elif live.revision < committed or not live.is_whole():
        verdict.counts["table entries behind"] += 1
    elif live.entries != model.entries or live.head != model.head:
        differing = sorted(
            entry
            for entry in live.entries.keys() | model.entries.keys()
            if live.entries.get(entry) != model.entries.get(entry)
        )
        verdict.add("table_wrong", name, f"at revision {committed} the table differs in {differing[:5] or 'its head'}")
    else:
        verdict.counts["table entries current"] += 1
