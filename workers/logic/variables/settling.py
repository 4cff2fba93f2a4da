"""What an answer sets free: who waited for it is given its values, and runs when nothing else is awaited."""

from collections.abc import Callable
from typing import TypeAlias

from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue
from workers.logic.variables import entries
from workers.logic.variables.activities import SCHEDULED
from workers.logic.variables.awaiting import OPEN_LOOP, closed_gate
from workers.logic.variables.open_requests import START, Request
from workers.logic.variables.references import MISSING, Missing, Path, descend
from workers.logic.variables.requests import ENDINGS, SET_VARIABLES, SETTERS, check_held, fail, skip
from workers.logic.variables.scope import POINTERS, provider_name, segments_within
from workers.logic.variables.step import Ending, Step

#: What one answer means for paths, by where they are looked up: thousands may wait for the same large value.
_Found: TypeAlias = dict[tuple[str | None, str], JsonValue | Missing]


def settle(step: Step, run: Callable[[Step, Request], None]) -> None:
    """Run requests until nothing more can run, or until it is enough for one revision.

    A queue, not a recursion: a thousand requests may hang on each other. Each call gets at least one thing done.
    Raises `Rejection` for a `variables.set` that could not even run on arrival: it has no node to answer.
    """
    begun = False
    while (step.endings or step.runnable) and not (begun and step.is_full):
        begun = True
        if step.endings:
            _release(step, step.endings.popleft())
            continue
        key = next(iter(step.runnable))
        del step.runnable[key]
        request = step.state.requests.get(key)
        if request is None:
            continue  # an early output that ran just now ended it
        mark = step.mark()
        try:
            run(step, request)
        except Rejection as rejection:
            if request.type == SET_VARIABLES and not request.waited:
                raise
            step.rollback(mark)
            fail(step, request, rejection)


def _release(step: Step, ending: Ending) -> None:
    """Tell all who waited. Where that is too much for one revision, the others wait on, for this very ending."""
    found: _Found = {}
    for place, waiting in enumerate(step.state.requests.waiting_for(ending.key)):
        if place and step.is_full:
            step.endings.appendleft(ending)
            return
        before = len(step.endings)
        _unlock(step, waiting, ending, found)
        if len(step.endings) > before:
            found.clear()  # what is skipped or fails takes its node's variable along
    if ending.freed_domain is not None:
        following = step.state.requests.first_in(ending.freed_domain)
        if following is not None:
            _run_if_free(step, following, {})


def _run_if_free(step: Step, request: Request, answers: dict[str, JsonObject]) -> bool:
    if request.sent or not step.state.requests.may_run(request):
        return False
    step.runnable.setdefault(request.key, answers)
    return True


def _unlock(step: Step, waiting: Request, ending: Ending, found: _Found) -> None:
    """Give a waiting request what an ending means for it."""
    key = ending.key
    for after in waiting.gates.get(key, ()):
        name = after.partition(".")[0]
        node = step.state.read(entries.node(ending.frame, name))
        # A node's note may be of a later activity than the answer that came now.
        is_activity = ending.type == SCHEDULED or ending.type in ENDINGS
        ports = node.get("ports") if is_activity and isinstance(node, dict) else None
        closed = closed_gate(after, _output_of(step, ending, name, found), ending.ended, ports)
        if closed is not None:
            skip(step, waiting, "port_absent", closed)
            return
    bound: JsonObject = {}
    for text in waiting.awaits.get(key, ()):
        value = _value_for(step, waiting, text, ending, found)
        if value is not MISSING:
            bound[text] = value
    step.state.take_answer(waiting, key, bound)
    answers = {key: bound}
    for other in _not_needed_any_more(step, waiting):
        answers[other] = {}
        step.state.take_answer(waiting, other, {})
    # Most can run now, and nothing has to be kept.
    if _run_if_free(step, waiting, answers):
        return
    del answers[key]
    for other, nothing in answers.items():
        step.state.save_answer(waiting, other, nothing)
    try:
        check_held(step, waiting, step.state.save_answer(waiting, key, bound))
    except Rejection as rejection:
        fail(step, waiting, rejection)


def _not_needed_any_more(step: Step, waiting: Request) -> list[str]:
    """Return the awaited requests whose paths are only fallbacks of what is known by now not to be null."""
    state = step.state.requests.waiting(waiting.key)
    if state is None or not waiting.choices:
        return []
    needed: set[str] = set()
    for paths in waiting.choices:
        for path in paths:
            needed.add(path)
            if state.bound.get(path) is not None:
                break
    return [key for key in state.left if key not in waiting.gates and needed.isdisjoint(waiting.awaits[key])]


def _output_of(step: Step, ending: Ending, name: str, found: _Found) -> JsonValue | Missing:
    if ending.type not in SETTERS:
        return ending.outputs.get(name, MISSING)
    if (None, name) not in found:
        found[None, name] = step.state.variable(ending.frame, (name,))
    return found[None, name]


def _value_for(step: Step, waiting: Request, text: str, ending: Ending, found: _Found) -> JsonValue | Missing:
    """Return what an answer means for a path: the store as the answer leaves it, or what the answer itself gave."""
    path = Path(tuple(text.split(".")))
    root = path.segments[0]
    if root == "memory" and _awaited_elsewhere(step, waiting, text, ending.key):
        return MISSING
    if ending.key == START or root in POINTERS or root == "memory" or ending.type == OPEN_LOOP:
        if (waiting.frame, text) not in found:
            found[waiting.frame, text] = step.lookup_in(waiting.frame)(path)
        return found[waiting.frame, text]
    output = _output_of(step, ending, provider_name(path), found)
    return output if output is MISSING else descend(output, segments_within(path))


def _awaited_elsewhere(step: Step, waiting: Request, text: str, key: str) -> bool:
    """Tell whether another request of the namespace comes after this one: its result counts."""
    still = step.state.requests.waiting(waiting.key)
    return still is not None and any(text in waiting.awaits.get(other, ()) for other in still.left if other != key)
