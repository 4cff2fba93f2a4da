"""The whole verdict."""

from tests.support.checker.changes import check_changes
from tests.support.checker.commands import check_commands
from tests.support.checker.executions import check_executions
from tests.support.checker.items import check_items
from tests.support.checker.letters import check_letters
from tests.support.checker.positions import check_positions
from tests.support.checker.published import check_published
from tests.support.checker.table import check_table
from tests.support.checker.verdict import Verdict
from tests.support.history import History


def check(history: History) -> Verdict:
    """Judge a history, read at rest."""
    verdict, answered = check_commands(history)
    verdict.include(check_items(history, answered))
    verdict.include(check_changes(history))
    executions, models = check_executions(history)
    verdict.include(executions)
    verdict.include(check_published(history, models))
    verdict.include(check_table(history, models))
    verdict.include(check_letters(history))
    verdict.include(check_positions(history))
    return verdict
