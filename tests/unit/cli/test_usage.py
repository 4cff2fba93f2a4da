"""Every expected error is one line that says what to do, with its exit code."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from schemas.errors import SettingsInvalid
from schemas.exact_json import loads
from workers.cli import app
from workers.settings import read_settings

#: Nothing listens on port 1 of the loopback interface.
NOWHERE = {"TALLY_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1", "TALLY_POSTGRES_DSN": "postgresql://u:secret@127.0.0.1:1/d"}


def tally(*arguments: str, **environment: str) -> Result:
    return CliRunner(env={**NOWHERE, **environment}).invoke(app, arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pubish"], "Did you mean 'publish'?"),
        (["tail"], "see `tally tail --help`"),
        (["tail", "memory-conflict"], "memory-conflicts"),
        (["worker", "history"], "no worker 'history'; there are: variables, memory"),
        (["publish", "/nowhere.jsonl"], "cannot be read"),
        (["execution", "diff", "a@x", "b"], "should be EXECUTION@REVISION"),
        (["memory", "get", "k", "--subject", "patient"], "should be KIND:ID"),
        (["memory", "list", "--subject", ":P-4711"], "should be KIND or KIND:ID"),
        (["memory", "forget", "k", "--timeout", "-1"], "--timeout"),
        (["memory", "get", "a/b/c/d/e/f"], "address_invalid"),
        (["memory", "get", "default/workflow/w/-/-/k", "--workflow", "w"], "says it all; leave out --workflow"),
        (["memory", "history", "default/shared/-/p/1/k", "--subject", "p:1"], "says it all; leave out --subject"),
        (["memory", "get", "default/shared/-/case/c-7"], "has 5 of the 6 parts of an address"),
        (["memory", "forget", "shared/-/case/c-7/stage"], "has 5 of the 6 parts of an address"),
        (["memory", "get", "default/-/case/c-7/stage"], "has 5 of the 6 parts of an address"),
        (["memory", "get", "default/shared/-/-/k", "--subject", "p:1"], "has 5 of the 6 parts of an address"),
        (["dead-letters", "replay"], "--all"),
        (["memory", "watch", "stage"], "is not tenant/scope/workflow/kind/id/key"),
        (["execution", "show", "x", "--at", "0"], "see `tally execution show --help`"),
        (["execution", "list", "--status", "runing"], "'--status': 'runing' is not one of 'open', "),
        (["execution", "list", "-n", "0"], 'should be greater than or equal to 1; got "0"'),
        (["execution", "list", "-n", "many"], 'should be a whole number; got "many"'),
    ],
)
def test_a_wrong_call_is_explained_in_one_line(arguments: list[str], words: str) -> None:
    result = tally(*arguments)

    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("tally: ")


def test_a_bug_is_not_taken_for_the_answer_no(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise KeyError("lost")

    monkeypatch.setattr("workers.cli.topics_commands.document", broken)
    result = tally("asyncapi")

    assert result.exit_code == 70
    assert "KeyError: 'lost'" in result.stderr


@pytest.mark.parametrize("key", ["stage", "a/b", "a/b/c", "a/b/c/d/e/f", "of workflow"])
def test_a_key_may_hold_slashes(key: str) -> None:
    result = tally("memory", "get", key, "--subject", "case:c-7", "--workflow", "w")

    assert result.exit_code == 3, result.stderr  # it was understood: PostgreSQL is asked


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["topics", "check"], "Kafka at 127.0.0.1:1"),
        (["topics", "create"], "Kafka at 127.0.0.1:1"),
        (["tail", "node-results"], "Kafka at 127.0.0.1:1"),
        (["await", "x"], "Kafka at 127.0.0.1:1"),
        (["conflicts"], "Kafka at 127.0.0.1:1"),
        (["migrate"], "PostgreSQL at 127.0.0.1:1/d"),
        (["execution", "list"], "PostgreSQL at 127.0.0.1:1/d"),
        (["memory", "list"], "PostgreSQL at 127.0.0.1:1/d"),
    ],
)
def test_a_dependency_that_is_down_is_named_without_its_secret(arguments: list[str], name: str) -> None:
    result = tally(*arguments)

    assert result.exit_code == 3
    why = "no connection" if "Kafka" in name else "connection refused"
    assert result.stderr == f"tally: {name} does not answer ({why}); start it or correct its address\n"


def test_the_doctor_names_everything_that_is_down() -> None:
    result = tally("doctor", "--json")

    found = loads(result.stdout.encode())
    assert isinstance(found, list)
    assert [(d["name"], d["state"]) for d in found if isinstance(d, dict)] == [
        ("kafka", "down"),
        ("postgresql", "down"),
    ]
    assert result.exit_code == 3


def test_a_wrong_setting_is_named_without_its_value() -> None:
    result = tally("migrate", TALLY_POSTGRES_DSN="not-a-dsn-secret")

    assert result.exit_code == 2
    assert "TALLY_POSTGRES_DSN" in result.stderr
    assert "secret" not in result.output


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("BATCH_SIZE", "abc", "should be a whole number"),
        ("BATCH_SIZE", "0", "should be greater than or equal to 1"),
        ("ENDED_GRACE_S", "soon", "should be a number"),
        ("LOG_LEVEL", "LOUD", "should be 'DEBUG', 'INFO', 'WARNING' or 'ERROR'"),
        ("TOPIC_PREFIX", "a b", "should match pattern '^[A-Za-z0-9._-]{0,100}$'"),
    ],
)
def test_a_setting_that_is_no_secret_is_named_with_its_value(name: str, value: str, words: str) -> None:
    result = tally("migrate", **{f"TALLY_{name}": value})

    assert result.exit_code == 2
    assert result.stderr == f'tally: settings are wrong: TALLY_{name}: {words}; got "{value}"\n'


@pytest.mark.parametrize("name", ["postgres_dsn", "kafka_sasl_password"])
def test_a_secret_of_the_wrong_kind_is_not_shown(name: str) -> None:
    with pytest.raises(SettingsInvalid, match=f"TALLY_{name.upper()}: should be a text$"):
        read_settings(**{name: 7654321})


@pytest.mark.parametrize("servers", ["", "localhost:abc", "://", "a:9092,,b:9092", "localhost:0", "localhost:70000"])
def test_a_wrong_broker_address_is_a_wrong_setting(servers: str) -> None:
    result = tally("topics", "check", TALLY_KAFKA_BOOTSTRAP_SERVERS=servers)

    assert result.exit_code == 2
    assert result.stderr == (
        "tally: settings are wrong: TALLY_KAFKA_BOOTSTRAP_SERVERS: "
        "must look like host:9092, several separated by commas\n"
    )


@pytest.mark.parametrize("servers", ["kafka", "a.b-c:9092, 10.0.0.1:1", "[::1]:9092"])
def test_every_form_of_a_broker_address_is_taken(servers: str) -> None:
    assert read_settings(kafka_bootstrap_servers=servers).kafka().bootstrap_servers == servers


@pytest.mark.parametrize("variable", ["CA", "CERT", "KEY"])
def test_a_tls_file_that_is_missing_is_named(variable: str) -> None:
    name = f"TALLY_KAFKA_TLS_{variable}_FILE"

    result = tally("topics", "check", TALLY_KAFKA_SECURITY_PROTOCOL="SSL", **{name: "/nowhere.pem"})

    assert result.exit_code == 2
    assert result.stderr == (
        f"tally: {name}: /nowhere.pem cannot be read (No such file or directory); correct the path\n"
    )


@pytest.mark.parametrize("variable", ["CA", "CERT"])
def test_a_tls_file_that_holds_something_else_is_named(variable: str, tmp_path: Path) -> None:
    file = tmp_path / "some.pem"
    file.write_text("no certificate")

    result = tally(
        "topics", "check", TALLY_KAFKA_SECURITY_PROTOCOL="SSL", **{f"TALLY_KAFKA_TLS_{variable}_FILE": str(file)}
    )

    assert result.exit_code == 2
    assert f"TALLY_KAFKA_TLS_{variable}_FILE" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_rule_over_several_settings_names_them() -> None:
    result = tally("topics", "check", TALLY_KAFKA_SECURITY_PROTOCOL="SASL_SSL")

    assert result.stderr == (
        "tally: settings are wrong: SASL needs TALLY_KAFKA_SASL_USERNAME and TALLY_KAFKA_SASL_PASSWORD\n"
    )


def test_a_host_that_has_no_address_is_named() -> None:
    result = tally("execution", "list", TALLY_POSTGRES_DSN="postgresql://u:secret@no-such-host.invalid/d")

    assert result.exit_code == 3
    assert "PostgreSQL at no-such-host.invalid/d" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(("arguments", "code"), [(["up", "--data"], 3), (["asyncapi", "--schemas"], 2)])
def test_a_directory_that_cannot_be_used_is_named(arguments: list[str], code: int, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    for place in (file, file / "below"):
        result = tally(*arguments, str(place))

        assert result.exit_code == code
        assert str(place) in result.stderr
        assert result.stderr.count("\n") == 1


def test_nothing_is_started_with_a_wrong_setting(tmp_path: Path) -> None:
    result = tally("up", "--data", str(tmp_path / "data"), TALLY_BATCH_SIZE="0")

    assert result.exit_code == 2
    assert "TALLY_BATCH_SIZE" in result.stderr
    assert not (tmp_path / "data").exists()


def test_help_is_shown_without_arguments() -> None:
    result = tally()

    assert result.exit_code == 2
    assert "tally demo" in result.output


def test_commands_are_listed_in_the_order_of_the_readme() -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    table = readme.split("## Commands")[1].split("## Settings")[0]
    shown = re.findall("^│ ([a-z-]+)", tally("--help").stdout.split("─ Commands ─")[1], re.MULTILINE)

    assert shown == list(dict.fromkeys(re.findall(r"^\| `tally ([a-z-]+)", table, re.MULTILINE)))


def test_the_version_is_shown() -> None:
    assert tally("--version").stdout == "tally 0.1.0\n"


@pytest.mark.parametrize(
    "command",
    ["up", "demo", "worker", "publish", "tail", "await", "migrate", "doctor", "asyncapi", "conflicts"]
    + ["topics create", "topics check", "dead-letters list", "dead-letters replay"]
    + [f"execution {name}" for name in ("list", "show", "history", "reads", "diff", "fork")]
    + [f"memory {name}" for name in ("get", "list", "history", "forget", "watch")],
)
def test_every_command_of_the_contract_has_help(command: str) -> None:
    assert tally(*command.split(), "--help").exit_code == 0


def test_json_schemas_are_written_for_other_languages(tmp_path: Path) -> None:
    assert tally("asyncapi", "--schemas", str(tmp_path / "out")).exit_code == 0

    assert (tmp_path / "out" / "memory.write.schema.json").exists()
