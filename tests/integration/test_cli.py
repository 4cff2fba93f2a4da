"""The command line on real parts: topics, a worker process, what was published, and every view of it."""

import asyncio
import gzip
import re
import signal
import sys
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from time import monotonic

import pytest
import pytest_asyncio
from typer.testing import CliRunner, Result

from schemas.codes import CODES
from schemas.exact_json import JsonObject, dumps, loads
from workers.cli import app
from workers.embedded.processes import WorkerProcess

Tally = Callable[..., Result]
SUBJECT = ("--subject", "patient:P-1")


def event(number: int, event_type: str, data: JsonObject, subject: str | None = "run-1") -> bytes:
    attributes: dict[str, object] = {"specversion": "1.0", "id": f"e-{number}", "source": "/s", "type": event_type}
    if subject is not None:
        attributes["subject"] = subject
    return dumps({**attributes, "data": data})


RUN = [
    event(1, "execution.started", {"workflow": {"name": "w"}, "subjects": [{"kind": "patient", "id": "P-1"}]}),
    event(2, "activity.completed", {"activity_id": "lab", "output": {"value": loads(b"118.50")}}),
    event(3, "variables.set", {"variables": {"last": "{{lab.value}}"}}),
    event(4, "execution.completed", {"output": {"last": "{{last}}"}}),
]
WRITE: JsonObject = {"scope": "shared", "subject": {"kind": "patient", "id": "P-1"}, "key": "k", "type": "Decimal"}
WRITES = [
    event(
        5,
        "memory.write",
        {**WRITE, "value": loads(b"95.00"), "expected_version": 0, "writer": {"user_id": "mia"}},
        None,
    ),
    event(6, "memory.write", {**WRITE, "value": 2, "expected_version": 0, "writer": {"user_id": "tom"}}, None),
]


def documents(result: Result) -> list[JsonObject]:
    """Read what a command wrote: one JSON document a line."""
    return [line for text in result.stdout.splitlines() if isinstance(line := loads(text.encode()), dict)]


def document(result: Result) -> JsonObject:
    assert result.exit_code in {0, 1}, result.stderr
    found = loads(result.stdout.encode())
    assert isinstance(found, dict)
    return found


@pytest_asyncio.fixture
async def environment(kafka_bootstrap_servers: str, database: str, topic_prefix: str) -> dict[str, str]:
    return {
        "TALLY_KAFKA_BOOTSTRAP_SERVERS": kafka_bootstrap_servers,
        "TALLY_POSTGRES_DSN": database,
        "TALLY_TOPIC_PREFIX": topic_prefix,
        "TALLY_TOPIC_PARTITIONS": "2",
        "TALLY_KAFKA_SESSION_TIMEOUT_S": "6",
    }


@pytest.fixture
def tally(environment: dict[str, str]) -> Tally:
    def invoke(*arguments: str, given: bytes = b"") -> Result:
        return CliRunner(env=environment).invoke(app, arguments, input=given)

    return invoke


@pytest_asyncio.fixture
async def workers(environment: dict[str, str], tally: Tally, tmp_path: Path) -> AsyncIterator[WorkerProcess]:
    await asyncio.to_thread(tally, "topics", "create")
    process = WorkerProcess("both", ["worker", "variables", "memory"], environment, tmp_path / "workers.log")
    await process.start()
    yield process
    if process.running:
        await process.stop()


def test_topics_are_created_once_and_checked(tally: Tally) -> None:
    assert document(tally("topics", "create", "--json"))["created"] != []
    assert document(tally("topics", "create", "--json"))["created"] == []
    assert tally("topics", "check").exit_code == 0


def test_the_doctor_tells_what_to_do_next(tally: Tally) -> None:
    before = tally("doctor")
    tally("topics", "create")
    after = tally("doctor")

    assert before.exit_code == after.exit_code == 3
    assert "tally topics create" in before.stdout
    assert "tally worker variables" in after.stdout


@pytest.mark.parametrize("command", ["execution list", "memory list"])
def test_a_database_without_a_schema_is_told_apart(postgres_dsn: str, command: str) -> None:
    result = CliRunner(env={"TALLY_POSTGRES_DSN": postgres_dsn}).invoke(app, command.split())

    assert result.exit_code == 3
    assert result.stderr == "tally: the database has no schema; run `tally migrate`\n"


@pytest.mark.parametrize("command", ["execution list", "migrate"])
def test_a_wrong_password_is_told_apart(postgres_dsn: str, command: str) -> None:
    wrong = re.sub("//postgres:[^@]*@", "//postgres:secret@", postgres_dsn)

    result = CliRunner(env={"TALLY_POSTGRES_DSN": wrong}).invoke(app, command.split())

    assert result.exit_code == 3
    assert "refuses the user or password" in result.stderr
    assert "set TALLY_POSTGRES_DSN as `tally up` printed it" in result.stderr
    assert "secret" not in result.stderr
    assert result.stderr.count("\n") == 1


def test_good_lines_are_published_and_bad_ones_named(tally: Tally, tmp_path: Path) -> None:
    tally("topics", "create")
    file = tmp_path / "events.jsonl.gz"
    file.write_bytes(
        gzip.compress(BOM_UTF8 + b"\n".join([RUN[0], b"{oops", b"", RUN[1], event(9, "variables.st", {})]))
    )

    result = tally("publish", str(file))

    assert result.exit_code == 2
    assert "2 events published" in result.stdout
    assert [line.split(":")[1] for line in result.stderr.splitlines()[:2]] == [" line 2", " line 5"]
    shown = documents(tally("tail", "execution-events", "--from-beginning", "--json"))
    assert [record["event"]["id"] for record in shown if isinstance(record["event"], dict)] == ["e-1", "e-2"]


def test_the_newest_records_of_all_partitions_are_shown_in_order(tally: Tally) -> None:
    tally("topics", "create")
    for number in range(6):
        tally("publish", "-", given=event(number, "variables.set", {"variables": {}}, f"run-{number}"))

    shown = documents(tally("tail", "execution-events", "-n", "3", "--json"))

    assert [record["key"] for record in shown] == ["run-3", "run-4", "run-5"]


def test_everything_that_came_of_events_can_be_looked_at(tally: Tally, workers: WorkerProcess) -> None:
    assert tally("publish", "-", given=b"\n".join([*RUN, *WRITES])).exit_code == 0

    ended = tally("await", "run-1", "--json")
    written, refused = tally("await", "e-5", "--json"), tally("await", "e-6", "--json")

    assert (ended.exit_code, written.exit_code, refused.exit_code) == (0, 0, 1)
    assert '"last": 118.50' in ended.stdout
    assert (document(written)["type"], document(refused)["type"]) == ("memory.written", "memory.conflicted")

    _check_executions(tally)
    _check_forks_are_answered(tally)
    _check_memory(tally)
    deadline = monotonic() + 30
    while (doctor := tally("doctor")).stdout.count("nothing waits") < 2:
        assert monotonic() < deadline, doctor.stdout
    assert doctor.exit_code == 0, doctor.stdout


def _check_executions(tally: Tally) -> None:
    listed = loads(tally("execution", "list", "--json").stdout.encode())
    assert isinstance(listed, list)
    assert isinstance(listed[0], dict)
    assert (listed[0]["execution_id"], listed[0]["status"]) == ("run-1", "completed")
    assert [str(listed[0][name])[-1] for name in ("started_at", "ended_at")] == ["Z", "Z"]
    early = document(tally("execution", "show", "run-1", "--at", "2", "--json"))
    late = document(tally("execution", "show", "run-1", "--json"))
    assert isinstance(early["variables"], dict)
    assert isinstance(late["variables"], dict)
    assert "last" not in early["variables"]
    assert str(late["variables"]["last"]) == "118.50"
    difference = loads(tally("execution", "diff", "run-1@2", "run-1", "--json").stdout.encode())
    assert difference == [{"path": "last", "a": None, "b": late["variables"]["last"]}]
    touched = loads(tally("execution", "reads", "run-1", "last", "--json").stdout.encode())
    assert isinstance(touched, list)
    assert [touch["how"] for touch in touched if isinstance(touch, dict)] == ["wrote", "read"]
    assert "variables.set" in tally("execution", "history", "run-1").stdout
    assert tally("execution", "show", "run-1", "--at", "9").exit_code == 1
    assert tally("execution", "show", "nobody").exit_code == 1
    assert tally("execution", "reads", "run-1", "nothing").exit_code == 1
    assert tally("execution", "fork", "run-1", "--at", "2", "--as", "fork-1").exit_code == 0
    assert tally("publish", "-", given=event(20, "execution.completed", {}, "fork-1")).exit_code == 0
    assert tally("await", "fork-1").exit_code == 0
    again = tally("execution", "fork", "run-1", "--at", "3", "--as", "fork-1")
    assert (again.exit_code, again.stdout) == (1, "")
    assert "fork-1 exists already" in again.stderr
    forked = document(tally("execution", "show", "fork-1", "--json"))
    assert isinstance(forked["variables"], dict)
    assert "last" not in forked["variables"]
    assert forked["variables"]["lab"] == late["variables"]["lab"]
    assert (forked["forked_from"], forked["revision"]) == ({"execution_id": "run-1", "revision": 2}, 4)
    assert tally("execution", "diff", "run-1@2", "fork-1@2", "--json").stdout == "[]\n"
    assert tally("execution", "history", "fork-1").stdout.count("inherited") == 2


def _check_forks_are_answered(tally: Tally) -> None:
    other = loads(event(30, "execution.started", {"workflow": {"name": "w"}}, "run-3"))
    assert isinstance(other, dict)
    taken_id = dumps({**other, "id": "fork-fork-2", "source": "/tally/cli"})
    failing = event(
        33, "activity.failed", {"activity_id": "lab", "error": {"code": "timeout", "message": "no reply"}}, "run-3"
    )
    ending = event(31, "execution.completed", {}, "run-3")
    assert tally("publish", "-", given=b"\n".join([taken_id, failing, ending])).exit_code == 0
    assert tally("await", "run-3").exit_code == 0
    assert "lab failed: timeout: no reply" in tally("execution", "history", "run-3").stdout
    failures = [{"node_id": "lab", "code": "timeout", "message": "no reply"}]
    assert document(tally("execution", "show", "run-3", "--json"))["failures"] == failures

    refused = tally("execution", "fork", "run-1", "--at", "2", "--as", "fork-2")

    assert refused.exit_code == 1
    assert "fork-2 was not started: id_reused" in refused.stderr
    twice = event(32, "execution.started", {"workflow": {"name": "w"}}, "run-3")
    assert tally("publish", "-", given=twice).exit_code == 0
    assert "e-32 was dead-lettered: already_started" in tally("await", "e-32").stderr


def _check_memory(tally: Tally) -> None:
    item = document(tally("memory", "get", "k", *SUBJECT, "--json"))
    assert (str(item["value"]), item["version"]) == ("95.00", 1)
    assert str(item["written_at"]).endswith("Z")
    assert item == document(tally("memory", "get", str(item["address"]), "--json"))
    assert "95.00" in tally("memory", "list", "--subject", "patient:P-1").stdout
    assert "P-1" not in tally("memory", "list", "--subject", "patient:P").stdout
    assert "P-1" not in tally("memory", "list", "--tenant", "north").stdout
    assert "mia (command e-5 from /s)" in tally("memory", "history", "k", *SUBJECT).stdout
    _check_lists(tally)
    race = "tom (command e-6 from /s) expected version 0 but met version 1 of mia (command e-5 from /s)"
    assert re.match(rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d  default/.*{re.escape(race)}", tally("conflicts").stdout)
    assert tally("memory", "forget", "k", *SUBJECT).exit_code == 0
    assert tally("memory", "forget", "k", *SUBJECT).exit_code == 1
    assert tally("memory", "get", "k", *SUBJECT).exit_code == 1
    assert tally("memory", "history", "k", *SUBJECT).exit_code == 1


def _check_lists(tally: Tally) -> None:
    """What a run has at hand are its subjects' items and its workflow's global ones, and no neighbours'."""
    places: list[JsonObject] = [
        {"scope": "workflow", "workflow": "w", "subject": {"kind": "patient", "id": "P-1"}},
        {"scope": "workflow", "workflow": "w", "subject": "workflow-global"},
        {"scope": "workflow", "workflow": "w", "subject": {"kind": "patient", "id": "P-10"}},
        {"scope": "workflow", "workflow": "w", "subject": {"kind": "patient", "id": "P"}},
        {"scope": "workflow", "workflow": "w2", "subject": {"kind": "patient", "id": "P-1"}},
        {"scope": "workflow", "workflow": "w2", "subject": "workflow-global"},
        {"scope": "workflow", "workflow": "w/-", "subject": "workflow-global"},
        {"scope": "workflow", "workflow": "w", "subject": {"kind": "-", "id": "-"}},
        {"scope": "shared", "subject": {"kind": "patient", "id": "P-2"}},
    ]
    writes = [
        event(50 + number, "memory.write", {**place, "key": f"k-{number}", "type": "Integer", "value": number}, None)
        for number, place in enumerate(places)
    ]
    assert tally("publish", "-", given=b"\n".join(writes)).exit_code == 0
    for number in range(len(places)):
        assert tally("await", f"e-{50 + number}").exit_code == 0

    def keys(*arguments: str) -> list[object]:
        listed = loads(tally("memory", "list", "--json", *arguments).stdout.encode())
        assert isinstance(listed, list)
        return [item["key"] for item in listed if isinstance(item, dict)]

    assert keys("--execution", "run-1") == ["k", "k-1", "k-0"]
    assert keys("--workflow", "w", "--global") == ["k-1"]
    assert keys("--workflow", "w", "--subject", "patient") == ["k-0", "k-2", "k-3"]
    assert keys("--shared") == ["k", "k-8"]
    assert keys("--subject", "patient:P-1") == ["k", "k-0", "k-4"]
    assert keys("--execution", "run-1", "-n", "1") == ["k"]
    shown = tally("memory", "list", "--execution", "run-1").stdout
    assert [word in shown for word in ("k-0", "mia", "Decimal", "95.00", "P-10")] == [True, True, True, True, False]
    assert tally("memory", "list", "--execution", "run-1", "--shared").exit_code == 2
    assert tally("memory", "list", "--shared", "--workflow", "w").exit_code == 2
    assert tally("memory", "list", "--global", "--subject", "patient").exit_code == 2
    assert tally("memory", "list", "--execution", "nobody").exit_code == 1


def test_a_dead_letter_is_listed_with_a_remedy_and_published_again(tally: Tally, workers: WorkerProcess) -> None:
    wrapped = {"topic": "execution-events", "event": loads(RUN[0])}
    again = {**loads(RUN[0]), "data": {"workflow": {"name": "other"}}}  # type: ignore[dict-item]
    assert tally("publish", "-", given=dumps(wrapped) + b"\n" + dumps(again)).exit_code == 0
    assert tally("publish", "-", given=RUN[3]).exit_code == 0
    assert tally("await", "run-1").exit_code == 0

    listed = loads(tally("dead-letters", "list", "--json").stdout.encode())

    assert isinstance(listed, list)
    [letter] = listed
    assert isinstance(letter, dict)
    assert letter["code"] == "id_reused"
    assert CODES["id_reused"] in tally("dead-letters", "list").stdout
    awaited = tally("await", "e-1", "--timeout", "2")
    assert (awaited.exit_code, awaited.stdout) == (1, "")
    assert "e-1 was dead-lettered: id_reused" in awaited.stderr
    assert "1 in the topic -> see `tally dead-letters list`" in tally("doctor").stdout
    assert tally("dead-letters", "replay", "no-such-id").exit_code == 1
    assert document(tally("dead-letters", "replay", str(letter["id"]), "--json"))["published"] == [letter["id"]]
    shown = documents(tally("tail", "execution-events", "--from-beginning", "--json"))
    assert len(shown) == 4

    # What the replay came to is known when what lies behind it is answered.
    behind = event(5, "scratchpad.read", {"node_id": "behind", "key": "k"})
    assert tally("publish", "-", given=behind).exit_code == 0
    assert tally("await", "e-5").exit_code == 0
    listed = loads(tally("dead-letters", "list", "--json").stdout.encode())
    assert isinstance(listed, list)
    assert [letter.get("replay_of") for letter in listed] == [None, letter["id"]]  # type: ignore[union-attr]


async def test_workers_leave_on_sigterm(workers: WorkerProcess) -> None:
    await _until(lambda: "worker starts" in workers.log.read_text())

    workers.send(signal.SIGTERM)

    assert await asyncio.wait_for(workers.wait(), 30) == 0, workers.log.read_text()


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.1)


async def test_a_wrong_setting_ends_a_worker_at_once(environment: dict[str, str], tmp_path: Path) -> None:
    wrong = WorkerProcess("wrong", ["worker", "memory"], {**environment, "TALLY_BATCH_SIZE": "0"}, tmp_path / "log")
    await wrong.start()

    assert await asyncio.wait_for(wrong.wait(), 30) == 2
    assert "TALLY_BATCH_SIZE" in wrong.log.read_text()


async def test_up_that_is_interrupted_in_its_start_stops_at_once() -> None:
    starting = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "workers", "up"), stderr=asyncio.subprocess.PIPE
    )
    assert starting.stderr is not None
    try:
        assert b"making a new PostgreSQL data directory" in await asyncio.wait_for(starting.stderr.readline(), 30)

        starting.send_signal(signal.SIGINT)
        rest = await asyncio.wait_for(starting.stderr.read(), 20)
        exit_code = await asyncio.wait_for(starting.wait(), 20)
    finally:
        if starting.returncode is None:
            starting.terminate()

    assert exit_code == 0
    assert rest.decode().splitlines() == ["stopping", "nothing is left running"]
