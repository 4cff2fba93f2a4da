"""Queries in .sql files."""

from pathlib import Path

import pytest

from workers.runtime.queries import load_queries

REPOSITORY = Path(__file__).resolve().parents[3]


def load(tmp_path: Path, text: str) -> dict[str, str]:
    (tmp_path / "queries.sql").write_text(text)
    return dict(load_queries(str(tmp_path / "store.py")))


def test_each_name_has_its_text(tmp_path: Path) -> None:
    queries = load(tmp_path, "-- name: one\n-- The first.\nSELECT 1;\n\n-- name: two\n-- The second.\nSELECT 2;\n")

    assert queries == {"one": "-- The first.\nSELECT 1;", "two": "-- The second.\nSELECT 2;"}


def test_a_name_given_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="twice"):
        load(tmp_path, "-- name: one\n-- A.\nSELECT 1;\n-- name: one\n-- B.\nSELECT 2;\n")


def test_a_query_without_a_sentence_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="what one is for"):
        load(tmp_path, "-- name: one\nSELECT 1;\n")


@pytest.mark.parametrize("path", sorted(REPOSITORY.glob("workers/**/*.sql")), ids=lambda path: path.name)
def test_every_query_is_used(path: Path) -> None:
    names = load_queries(str(path), path.name)
    code = "".join(module.read_text() for module in path.parent.glob("*.py"))

    assert [name for name in names if f'"{name}"' not in code] == []
