"""The checker finds what simulated runs must not do, planted into a history in which they did nothing of it."""

from msgspec.structs import replace

from schemas.exact_json import JsonObject
from tests.support.checker import check
from tests.support.checker.executions import Modelled, check_executions
from tests.support.history import History, event_of
from tests.support.planting import found, records, rewrite
from topics.catalog import Topic
from topics.codec import encode


def simulated(history: History) -> list[Modelled]:
    """Return the simulated runs."""
    _, models = check_executions(history)
    return [model for model in models.values() if model.simulated]


def test_simulated_runs_read_real_memory(history):
    assert any(look.version for model in simulated(history) for look in model.seen)
    assert any(not look.version for model in simulated(history) for look in model.seen)
    assert any("conversation" in look.address for model in simulated(history) for look in model.seen)


def test_a_command_of_a_simulated_run_is_found(history):
    run = simulated(history)[0].key.execution_id
    record = next(
        record for record in history.log(Topic.MEMORY_COMMANDS) if (event := event_of(record)) and event.subject
    )
    event = event_of(record)
    assert event is not None
    leaked = replace(event, id="leaked", subject=run)
    history.logs[Topic.MEMORY_COMMANDS].append(replace(record, value=encode(leaked)))

    found(history, "simulation_leaked")


def test_a_change_by_a_simulated_run_is_found(history):
    run = simulated(history)[0].key.execution_id
    change = event_of(records(history, Topic.MEMORY_CHANGES, "memory.changed")[0])
    assert change is not None
    writer: JsonObject = {"execution_id": run}
    rewrite(history, Topic.MEMORY_CHANGES, change.id, lambda data: data.update(writer=writer))

    found(history, "simulation_leaked")


def test_a_simulated_run_that_keeps_what_never_was_is_found(history):
    look = next(look for model in simulated(history) for look in model.seen if look.version and "item-" in look.address)
    entry = f'["o/{look.address.replace("/", "%2F")}",{{"version":{look.version},'.encode()
    place, row = next((n, row) for n, row in enumerate(history.revisions) if entry in row.changes)
    wrong = entry.replace(b'"version":', b'"version":9')
    history.revisions[place] = row._replace(changes=row.changes.replace(entry, wrong))

    found(history, "simulation_wrong")


def test_a_simulated_run_that_keeps_nothing_of_what_it_read_is_found(history):
    look = next(look for model in simulated(history) for look in model.seen if look.version)
    entry = f'["o/{look.address.replace("/", "%2F")}"'.encode()
    place, row = next((n, row) for n, row in enumerate(history.revisions) if entry in row.changes)
    history.revisions[place] = row._replace(changes=row.changes.replace(entry, b'["o/elsewhere"'))

    found(history, "simulation_wrong")


def test_a_simulated_run_that_sees_what_is_long_gone_is_found(history):
    look = next(
        look
        for model in simulated(history)
        for look in model.seen
        if "item-" in look.address
        and 0 < look.version < max(r.version for r in history.items if r.address == look.address)
    )
    cause = look.name.removeprefix("simulated ")
    for topic in (Topic.EXECUTION_EVENTS, Topic.ACTIVITY_OUTPUTS, Topic.VARIABLE_UPDATES):
        history.logs[topic] = [
            replace(record, timestamp_ms=record.timestamp_ms + 10**7)
            if f'"id":"{cause}"'.encode() in record.value
            else record
            for record in history.log(topic)
        ]

    found(history, "not_linearizable")


def test_what_simulated_runs_met_and_changed_at_once_need_not_have_been_published(history):
    newest = {(row.address, row.sequence) for row in history.items}
    history.logs[Topic.MEMORY_CHANGES] = [
        record
        for record in history.log(Topic.MEMORY_CHANGES)
        if (event := event_of(record)) is None or (event.data["address"], event.data["sequence"]) in newest
    ]

    verdict = check(history)

    assert verdict.counts["states met that were not published"] > 2
    assert verdict.holds, str(verdict)
