"""What the log shows."""

import io
import logging
from collections.abc import Iterator

import pytest

from schemas.exact_json import loads
from workers.runtime import logs
from workers.settings import read_settings


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = root.handlers, root.level
    output = io.StringIO()
    monkeypatch.setattr("sys.stderr", output)
    logs.configure("INFO", "json")
    yield output
    root.handlers, level = before
    root.setLevel(level)


def test_a_batch_is_one_line_of_fields(lines: io.StringIO) -> None:
    logs.batch_logger("variables").info("batch", action="batch", records=3)

    line = loads(lines.getvalue().encode())
    assert isinstance(line, dict)
    assert (line["event"], line["worker"], line["records"], line["level"]) == ("batch", "variables", 3, "info")


def test_secrets_show_as_stars(lines: io.StringIO) -> None:
    settings = read_settings(postgres_dsn="postgresql://user:hunter2@127.0.0.1/x", kafka_sasl_password="hunter3")

    logs.batch_logger("variables").info("settings", settings=settings)

    assert "hunter" not in lines.getvalue()


def test_a_librarys_flood_is_one_line(lines: io.StringIO) -> None:
    for number in range(100):
        logging.getLogger("aiokafka.producer").warning("retrying %s", number)

    assert lines.getvalue().count("retrying") == 1


def test_our_own_lines_are_never_dropped(lines: io.StringIO) -> None:
    for _ in range(3):
        logs.batch_logger("variables").info("batch")

    assert lines.getvalue().count("batch") == 3
