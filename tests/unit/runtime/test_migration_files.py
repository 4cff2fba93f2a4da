"""The migrations as files."""

import re

from workers.runtime.migrations import migration_files


def test_migrations_are_numbered_without_a_gap() -> None:
    numbers = [int(migration.name[:4]) for migration in migration_files()]

    assert numbers == list(range(1, len(numbers) + 1))


def test_names_of_constraints_read_as_errors() -> None:
    """A violated constraint reaches people by its name alone: generated names tell nothing."""
    for migration in migration_files():
        tables = re.findall(r"CREATE TABLE.*?;", migration.sql, re.DOTALL)
        for table in tables:
            unnamed = re.findall(
                r"^(?!.*CONSTRAINT).*\b(?:PRIMARY KEY|UNIQUE|CHECK|REFERENCES)\b.*$", table, re.MULTILINE
            )
            assert [line for line in unnamed if not line.strip().startswith("--")] == [], migration.name
