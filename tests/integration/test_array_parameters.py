"""What is sent as an array is the same, whichever way the driver looks at its elements."""

from datetime import UTC, datetime
from uuid import UUID

import asyncpg
import pytest
from asyncpg.protocol import protocol

from workers.runtime.array_parameters import ARRAYS, DRIVER_NAMES, look_plainly

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in DRIVER_NAMES:
        # Set back afterwards; a driver that has no such name fails here.
        monkeypatch.setattr(protocol, name, getattr(protocol, name))
    look_plainly()


def test_the_driver_looks_by_concrete_types() -> None:
    assert [getattr(protocol, name) for name in DRIVER_NAMES] == [ARRAYS, ARRAYS]


@pytest.mark.parametrize(
    ("kind", "elements"),
    [
        ("text", ["", "a", None, "{,}", "\\", "ä"]),
        ("bytea", [b"", b"\x00{", None]),
        ("bigint", [0, -1, None, 2**62]),
        ("uuid", [UUID(int=0), None]),
        ("timestamptz", [NOON, None]),
        ("boolean", [True, None, False]),
        ("bigint", [[1, 2], [3, 4]]),
        ("text", ("a", None)),
        ("text", []),
    ],
)
async def test_every_array_arrives_as_it_was_sent(
    database: str, kind: str, elements: list[object] | tuple[object, ...]
) -> None:
    connection = await asyncpg.connect(database)
    try:
        found = await connection.fetchval(f"SELECT $1::{kind}[]", elements)
    finally:
        await connection.close()

    assert found == list(elements)


@pytest.mark.parametrize("given", ["text", b"bytes", {"a": 1}, 1])
async def test_what_is_no_array_is_refused(database: str, given: object) -> None:
    connection = await asyncpg.connect(database)
    try:
        with pytest.raises(asyncpg.DataError):
            await connection.fetchval("SELECT $1::text[]", given)
    finally:
        await connection.close()
