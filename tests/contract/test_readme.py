"""The README names every setting and command, none that does nothing, and its links lead somewhere."""

import re
from pathlib import Path

import pytest
import typer

from schemas.registry import parse
from topics.catalog import CATALOG
from topics.codec import decode
from workers.cli import app
from workers.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("field", Settings.model_fields)
def test_every_setting_is_explained(field: str) -> None:
    assert f"`TALLY_{field.upper()}`" in README


def test_every_setting_is_read_somewhere() -> None:
    code = "".join(module.read_text(encoding="utf-8") for module in (ROOT / "workers").rglob("*.py"))

    assert [field for field in Settings.model_fields if not re.search(rf"\.{field}\b", code)] == []


@pytest.mark.parametrize("command", typer.main.get_command(app).commands)  # type: ignore[attr-defined]
def test_every_command_is_explained(command: str) -> None:
    assert f"`tally {command}" in README


def test_every_public_topic_is_named() -> None:
    assert [spec.topic for spec in CATALOG if spec.direction != "internal" and f"`{spec.topic}`" not in README] == []


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_every_link_into_the_repository_leads_somewhere(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")

    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)

    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_event_that_is_shown_is_one() -> None:
    events = re.findall(r"""^(?:echo ')?(\{"specversion".*\})(?:' \| .*)?$""", README, re.MULTILINE)

    assert len(events) == 6
    for event in events:
        parse(decode(event.encode()))
