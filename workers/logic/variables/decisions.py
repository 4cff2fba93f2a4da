"""Condition nodes: which way a run goes, with every value that was compared (seed 000)."""

from schemas.exact_json import JsonObject, JsonValue
from workers.logic.variables.condition_tree import Condition
from workers.logic.variables.conditions import (
    Branch,
    choose_branch,
    evaluate,
    parse_branches,
    parse_condition,
    references_of,
)
from workers.logic.variables.open_requests import Request
from workers.logic.variables.requests import answer_with, lookup_of, take_in
from workers.logic.variables.step import Step


def asked(step: Step, body: JsonObject) -> None:
    """Take in `condition.evaluate`; it waits for every node that any of its conditions references."""
    question = _question(body)
    conditions = (
        [branch.condition for branch in question if branch.condition is not None]
        if isinstance(question, tuple)
        else [question]
    )
    take_in(step, body, tuple(reference for condition in conditions for reference in references_of(condition)))


def _question(body: JsonObject) -> Condition | tuple[Branch, ...]:
    if body.get("branches") is not None:
        return parse_branches(body["branches"])
    return parse_condition(body["condition"])


def decide(step: Step, request: Request) -> None:
    """Evaluate, and answer with the result or the branch and the compared values."""
    question = _question(request.body)
    lookup = lookup_of(step, request)
    if isinstance(question, tuple):
        choice = choose_branch(question, lookup)
        said: JsonObject = {"branch": choice.branch}
        operands, reads = choice.operands, choice.reads
    else:
        evaluation = evaluate(question, lookup)
        said = {"result": evaluation.result}
        operands, reads = evaluation.operands, evaluation.reads
    step.note_reads(reads, request.node_id)
    compared: list[JsonValue] = [operand.as_json() for operand in operands]
    step.check_result(compared, f"what {request.node_id!r} compared")
    answer_with(step, request, "condition.evaluated", {**said, "operands": compared}, {**said, "done": True})
