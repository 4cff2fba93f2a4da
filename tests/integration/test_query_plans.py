"""No statement that runs with each batch, sweep or look-up reads a whole table, however large the tables are."""

from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

import pytest
import pytest_asyncio
from asyncpg import Record
from pydantic import SecretStr

from schemas.exact_json import loads
from workers.memory import history as memory_history
from workers.memory import store as memory_store
from workers.runtime import items
from workers.runtime.postgres import BY_KEY, Connection, Database
from workers.variables import history as variables_history
from workers.variables import retention as variables_retention
from workers.variables import store as variables_store

Arguments: TypeAlias = tuple[object, ...]


class Tables(NamedTuple):
    """A filled database, as workers and as people see it."""

    workers: Database
    people: Database


_LARGE = frozenset({"memory_items", "memory_versions", "memory_outcomes", "executions", "revisions", "rejections"})
_FILL = (
    """INSERT INTO memory_items (address, version, sequence, type, value, change, changed_at, changed_by, expires_at)
       SELECT format('default/workflow/w/patient/%s/stage', n), 1, 1, 'Json', '1', 'written', now(),
              gen_random_uuid(), now() + make_interval(secs => n)
         FROM generate_series(1, $1::integer) AS n""",
    """INSERT INTO memory_versions
       SELECT address, 1, 'Json', '1', NULL, now(), expires_at, gen_random_uuid() FROM memory_items""",
    """INSERT INTO memory_outcomes
       SELECT gen_random_uuid(), '0123456789abcdef', address, 'k', '{}', NULL, now() FROM memory_items""",
    """INSERT INTO executions (tenant, execution_id, revision, status, head, seen_at, updated_at, ended_at)
       SELECT 'default', format('run-%s', n), 1, CASE WHEN n % 10 = 0 THEN 'completed' ELSE 'running' END, '{}',
              now() + make_interval(secs => n), now(), CASE WHEN n % 10 = 0 THEN now() - make_interval(secs => n) END
         FROM generate_series(1, $1::integer) AS n""",
    """INSERT INTO revisions
       SELECT tenant, execution_id, 1, gen_random_uuid(), '0123456789abcdef', now(), '{}', '{}', '{}' FROM executions""",
    """INSERT INTO rejections
       SELECT 'execution-events', 0, n, n, 'malformed', 'm', now() - make_interval(secs => n * 100)
         FROM generate_series(1, $1::integer) AS n""",
    "INSERT INTO memory_unpublished SELECT address, 1 FROM memory_items",
    "INSERT INTO memory_erasures SELECT address, 1 FROM memory_items",
)
_NOW = datetime(2026, 11, 30, tzinfo=UTC)
_MANY = 499
_ADDRESSES = [f"default/workflow/w/patient/{number}/stage" for number in range(1, _MANY + 1)]
_RUNS = (["default"] * _MANY, [f"run-{number}" for number in range(1, _MANY + 1)])
_NEW_RUNS = (["default"] * _MANY, [f"new-{number}" for number in range(1, _MANY + 1)])
_ONES, _TWOS, _NONES, _BYTES = [1] * _MANY, [2] * _MANY, [None] * _MANY, [b"1"] * _MANY
_KEYS = [UUID(int=number) for number in range(_MANY)]
_DIGESTS = [b"0123456789abcdef"] * _MANY
_TIMES = [_NOW] * _MANY

#: What workers ask, with each batch or each sweep.
_MEMORY: Mapping[str, Arguments] = {
    "add_items": (_ADDRESSES,),
    "lock_items": (_ADDRESSES,),
    "lock_unlocked_items": (_ADDRESSES,),
    "read_known": (_KEYS,),
    "read_bases": (_ADDRESSES, _ONES),
    "write_batch": (
        *(_NOW, _ADDRESSES, _ONES, _TWOS, _TWOS, _ONES, _ONES, ["Json"] * _MANY, _BYTES, _BYTES),
        *(_KEYS, _TIMES, _NONES, "conversation"),
        *([[]] * 7),
        *([[]] * 6),
        *(_ADDRESSES, _ONES),
        *("memory", "memory-commands", [], [], [], _ADDRESSES, _ONES),
    ),
    "read_newer": (_ADDRESSES, [0] * _MANY),
    "find_expired": (500, 0),
    "expire_items": (_ADDRESSES, _TWOS, _ONES, _ONES, _TIMES, _KEYS),
    "delete_versions": (_ADDRESSES, _ONES),
    "read_unpublished": (500,),
    "delete_unpublished": (_ADDRESSES, _ONES),
    "erase_history": (500,),
    "finish_erasures": (500,),
    "delete_outcomes": (timedelta(days=8), 500),
}
_ITEMS: Mapping[str, Arguments] = {
    "read_items": (_ADDRESSES,),
    "list_records": ("default/workflow/w/conversation/", "default/workflow/w/conversation0", _NOW, 10**6),
}
_VARIABLES: Mapping[str, Arguments] = {
    "open_executions": _NEW_RUNS,
    "lock_heads": _RUNS,
    "known_events": (_KEYS,),
    "known_rejections": (["execution-events"] * _MANY, [0] * _MANY, _ONES, _ONES),
    "revisions_of": (_KEYS,),
    "bytes_from": (*_RUNS, _ONES),
    "revisions_from": (*_RUNS, _ONES),
    "changes_of": (*_RUNS, _ONES),
    "write_batch": (
        *(_NOW, *_RUNS, _TWOS, ["running"] * _MANY, _BYTES, ["w"] * _MANY, _NONES),
        *(*_RUNS, _TWOS, _KEYS, _DIGESTS, _BYTES, _BYTES, _BYTES),
        *([[]] * 6),
        *("test", [], [], [], _ONES),
    ),
    "note_published": (*_RUNS, _ONES),
    "drop_unused_rows": _NEW_RUNS,
    "hold_revision": ("default", "run-7", 1),
    "inherit_revisions": (*_NEW_RUNS, _RUNS[1], _ONES, [0] * _MANY),
}
_RETENTION: Mapping[str, Arguments] = {"delete_executions": (90, 500), "delete_rejections": (8, 500)}
#: What people ask.
_PATIENT = ("default/workflow/w/patient/7/", "default/workflow/w/patient/70", "workflow", "w", "patient", "7")
_GLOBAL = ("default/workflow/w/-/-/", "default/workflow/w/-/-0", "workflow", "w", "-", "-")
_MEMORY_HISTORY: Mapping[str, Arguments] = {
    "read_item": (_ADDRESSES[0],),
    "list_items": (*([*pair] for pair in zip(_PATIENT, _GLOBAL, strict=True)), "", 50),
    "list_versions": (_ADDRESSES[0], 2**62, 50),
}
_VARIABLES_HISTORY: Mapping[str, Arguments] = {
    "list_executions": ("default", None, None, None, None, 50),
    "one_execution": ("default", "run-7"),
    "children_of": ("default", "run-7"),
    "list_revisions": ("default", "run-7", 0, 500),
    "changes_up_to": ("default", "run-7", 2**62),
    "is_applied": ("default", "run-7", _KEYS[0]),
}


@pytest_asyncio.fixture
async def tables(database: str, rows: int) -> AsyncIterator[Tables]:
    """Tables of `rows` rows each."""
    dsn = SecretStr(database)
    async with (
        Database(dsn, pool_size=1, application_name="workers", session=BY_KEY) as workers,
        Database(dsn, pool_size=1, application_name="people") as people,
    ):
        async with people.session() as connection:
            for statement in _FILL:
                await connection.execute(statement, *([rows] if "$1" in statement else []), timeout=300)
            await connection.execute("VACUUM ANALYZE", timeout=300)
        yield Tables(workers, people)


@pytest.mark.parametrize(
    "rows",
    [20_000, pytest.param(1_000_000, marks=[pytest.mark.large, pytest.mark.timeout(900)])],
    ids=["20,000 rows", "1,000,000 rows"],
)
async def test_no_statement_reads_a_whole_table(tables: Tables, rows: int) -> None:
    statements = [
        *((tables.workers, memory_store._QUERIES, _MEMORY), (tables.workers, items._QUERIES, _ITEMS)),
        *((tables.workers, variables_store._QUERIES, _VARIABLES),),
        *((tables.workers, variables_retention._QUERIES, _RETENTION),),
        *((tables.people, memory_history._QUERIES, _MEMORY_HISTORY),),
        *((tables.people, variables_history._QUERIES, _VARIABLES_HISTORY),),
    ]

    whole: list[str] = []
    for database, queries, asked in statements:
        async with database.session() as connection:
            for name, arguments in asked.items():
                plan = await _plan(connection, queries[name], arguments)
                whole += [f"{name}: {scan}" for scan in _whole_reads(plan["Plan"])]
                print(f"{rows:9,} rows  {name:20}  {plan['Execution Time']:9.2f} ms")

    assert whole == [], "\n".join(whole)


async def _plan(connection: Connection, query: str, arguments: Arguments) -> dict[str, Any]:
    """Run a statement, take back what it did, and return its plan."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        row: Record = await connection.fetchrow(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", *arguments)
    finally:
        await transaction.rollback()
    (plan,) = loads(row[0].encode())  # type: ignore[misc]
    return plan  # type: ignore[return-value]


def _whole_reads(node: Mapping[str, Any]) -> Iterator[str]:
    """Yield the steps that read a large table, or the index of one, from end to end."""
    is_scan = node["Node Type"].endswith("Scan") and node.get("Relation Name") in _LARGE
    if is_scan and not {"Index Cond", "Recheck Cond", "TID Cond"} & node.keys():
        yield f"{node['Node Type']} on {node['Relation Name']}"
    for part in node.get("Plans", ()):
        yield from _whole_reads(part)
