"""Validation errors in one line that says which field, what is wrong, with which value, and the near miss."""

from difflib import get_close_matches
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from schemas.exact_json import dumps

_SHOWN_CHARACTERS = 60
_WORDS = {
    "string_type": "should be a text",
    "string_too_short": "should not be empty",
    "string_too_long": "is too long",
    "int_type": "should be a whole number",
    "int_parsing": "should be a whole number",
    "float_parsing": "should be a number",
    "bool_type": "should be true or false",
    "list_type": "should be a list",
    "tuple_type": "should be a list",
    "is_instance_of": "should be an object",
    "model_type": "should be an object",
    "too_short": "should not be empty",
}


def explain(error: ValidationError, event_type: str, model: type[BaseModel]) -> str:
    """Return one line for the first problem, and how many more there are."""
    # A field that nobody knows comes first: it is often the one that is said to be missing, misspelled.
    problems = sorted(error.errors(include_url=False), key=lambda problem: problem["type"] != "extra_forbidden")
    first = _explain_one(problems[0], event_type, model)
    return first if len(problems) == 1 else f"{first} (and {len(problems) - 1} more)"


def _explain_one(problem: ErrorDetails, event_type: str, model: type[BaseModel]) -> str:
    path = problem["loc"]
    where = ".".join(("data", *(str(part) for part in path)))
    match problem["type"]:
        case "missing":
            return f"{where} is missing; {event_type} needs it"
        case "extra_forbidden":
            known = _fields_at(model, path[:-1])
            near = get_close_matches(str(path[-1]), known, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else f"known are: {', '.join(known)}"
            return f"{where} is not a field of {event_type}; {hint}"
        case _:
            return f"{where} {in_words(problem)}"


def in_words(problem: ErrorDetails, *, secret: bool = False) -> str:
    """Return what is wrong with a value in our words, and the value unless it is `secret`."""
    if problem["type"] == "value_error":
        # Raised by a check of ours or of the command line: it says by itself what it was given.
        return problem["msg"].removeprefix("Value error, ")
    what = _WORDS.get(problem["type"], problem["msg"].removeprefix("Input ").removeprefix("String "))
    return what if secret else f"{what}; got {_shown(problem['input'])}"


def _shown(value: object) -> str:
    """Return the value as JSON, cut to a readable length."""
    text = dumps(value).decode()
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _fields_at(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """Return the fields of the model that lies at `path` below `model`; positions in lists change nothing."""
    for part in path:
        if isinstance(part, str):
            inner = _model_in(model.model_fields[part].annotation)
            assert inner is not None, "an unknown field was found in a model"
            model = inner
    return list(model.model_fields)


def _model_in(annotation: object) -> type[BaseModel] | None:
    """Return the first model that an annotation mentions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part)) is not None), None)
