"""Every event that docs/guide.md shows is one, and what others publish has a topic to go to."""

import re
from pathlib import Path

import pytest

from schemas.envelope import Event
from schemas.limits import DEFAULT_LIMITS
from schemas.registry import INBOUND, parse, parse_command
from topics.codec import decode
from topics.routing import route

DOCS = Path(__file__).resolve().parents[2] / "docs"
GUIDE = (DOCS / "guide.md").read_text(encoding="utf-8")
EVENTS = [
    decode(line.encode())
    for block in re.findall(r"^```json\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.id)
def test_every_event_of_the_guide_is_one(event: Event) -> None:
    if event.subject is None and event.type in INBOUND:
        parse_command(event)
    else:
        parse(event)


@pytest.mark.parametrize("event", [event for event in EVENTS if event.type in INBOUND], ids=lambda event: event.id)
def test_every_event_that_the_guide_publishes_has_a_topic(event: Event) -> None:
    topic, _ = route(event)

    assert topic in INBOUND[event.type].topics


def test_no_two_events_of_the_guide_have_one_id() -> None:
    assert len({(event.source, event.id) for event in EVENTS}) == len(EVENTS)


def test_the_guide_shows_every_group_of_types() -> None:
    shown = {event.type.partition(".")[0] for event in EVENTS}

    assert {name.partition(".")[0] for name in INBOUND} <= shown


def test_the_guide_states_the_limits_that_hold() -> None:
    kib, mib = 1024, 1024 * 1024
    assert f"| an activity's output | {DEFAULT_LIMITS.output_bytes // kib} KiB |" in GUIDE
    assert f"| one resolved result | {DEFAULT_LIMITS.result_bytes // mib} MiB |" in GUIDE
    assert f"| the store of a run | {DEFAULT_LIMITS.store_bytes // mib} MiB |" in GUIDE
    assert f"| a value in memory | {DEFAULT_LIMITS.memory_value_bytes // kib} KiB |" in GUIDE
    assert f"| an item's address | {DEFAULT_LIMITS.address_bytes:,} bytes |" in GUIDE


def test_links_between_the_documents_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", GUIDE)

    assert [link for link in links if not (DOCS / link).exists()] == []
