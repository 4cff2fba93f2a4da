"""`-- name: x` queries from the queries.sql beside a store."""

import re
from collections.abc import Mapping
from pathlib import Path

_NAME = re.compile(r"^-- name: *([a-z][a-z0-9_]*) *$", re.MULTILINE)


def load_queries(beside: str, file_name: str = "queries.sql") -> Mapping[str, str]:
    """Return name -> SQL of the file beside the module `beside` (its `__file__`).

    Raises `ValueError` for a name given twice or a query without words of its own.
    """
    path = Path(beside).with_name(file_name)
    parts = _NAME.split(path.read_text(encoding="utf-8"))
    queries: dict[str, str] = {}
    for name, sql in zip(parts[1::2], parts[2::2], strict=True):
        if name in queries:
            raise ValueError(f"{path} names {name} twice; give each query its own name")
        if not sql.strip().startswith("--"):
            raise ValueError(f"{path}: say in one sentence, in a comment under its name, what {name} is for")
        queries[name] = sql.strip()
    return queries
