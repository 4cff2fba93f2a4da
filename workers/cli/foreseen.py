"""What a worker would refuse whatever is stored: a command or event that is wrong by itself."""

from datetime import UTC, datetime
from typing import cast

from schemas.envelope import Event
from schemas.errors import Rejection
from schemas.limits import DEFAULT_LIMITS
from schemas.names import check_name
from schemas.registry import parse
from topics.catalog import Topic
from workers.logic.memory.commands import Broken, Rules, understand
from workers.logic.memory.retention import retention_of
from workers.logic.variables.fold import WITHOUT_NODE, apply
from workers.logic.variables.state import ExecutionKey, ExecutionState
from workers.logic.variables.step import Context
from workers.variables.intake import subject_of

#: Only the worker can tell: what is stored elsewhere, and which types its plug-ins add.
_TOLD_BY_THE_WORKER = frozenset({"fork_unknown", "type_unknown"})
_RULES = Rules()
#: When an event is looked at changes nothing of whether it is refused.
_CONTEXT = Context(datetime(2000, 1, 1, tzinfo=UTC), DEFAULT_LIMITS)
_KEPT_FOR_A_TIME = frozenset({"memory.write", "memory.update"})


def check_alone(event: Event, topic: Topic) -> None:
    """Raise the `Rejection` that the worker of `topic` would answer or dead-letter the event with, if it is foreseen.

    What depends on a run's store, such as a mapping below a scalar, is not: that is the worker's to say.
    """
    try:
        if topic is Topic.MEMORY_COMMANDS:
            _check_command(event)
        else:
            _check_event(event, topic)
    except Rejection as refusal:
        if refusal.reason not in _TOLD_BY_THE_WORKER:
            raise


def _check_command(event: Event) -> None:
    request = understand(event, _RULES).request
    if isinstance(request, Broken):
        raise Rejection(request.code, request.message)


def _check_event(event: Event, topic: Topic) -> None:
    subject = subject_of(event, topic)
    parse(event)
    if event.type in WITHOUT_NODE:
        apply(ExecutionState.load(ExecutionKey(event.tenant, subject), None, {}), event, context=_CONTEXT)
    else:
        # Whatever else is wrong is answered to the node: only its own name can make that impossible.
        check_name(str(event.data.get("activity_id") or event.data["node_id"]), "the node id", DEFAULT_LIMITS)
    if event.type in _KEPT_FOR_A_TIME:
        # The one rule that a run's own memory command breaks by its fields alone.
        retention_of(event.data.get("ttl"), cast("str | None", event.data.get("ttl_unit")), DEFAULT_LIMITS)
