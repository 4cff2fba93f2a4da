"""The whole verdict."""

from tests.support.checker.changes import check_changes
from tests.support.checker.commands import check_commands
from tests.support.checker.conversations import check_conversations
from tests.support.checker.executions import check_executions
from tests.support.checker.items import check_items
from tests.support.checker.letters import check_letters
from tests.support.checker.positions import check_positions
from tests.support.checker.published import check_published
from tests.support.checker.read_versions import check_read_versions
from tests.support.checker.simulations import check_leaks
from tests.support.checker.table import check_table
from tests.support.checker.verdict import Verdict
from tests.support.history import History


def check(history: History) -> Verdict:
    """Judge a history, read at rest."""
    verdict, answered = check_commands(history)
    executions, models = check_executions(history, answered)
    verdict.include(executions)
    seen = [each for model in models.values() for each in model.seen]
    verdict.include(check_leaks(history, [key for key, model in models.items() if model.simulated]))
    verdict.include(check_items(history, answered, seen))
    verdict.include(check_conversations(history, answered, seen))
    verdict.include(check_read_versions(history, answered))
    verdict.include(check_changes(history))
    verdict.include(check_published(history, models))
    verdict.include(check_table(history, models))
    verdict.include(check_letters(history))
    verdict.include(check_positions(history))
    return verdict
