"""Bodies of events -> parsed templates, kept: a workflow sends the same bodies again and again."""

from functools import lru_cache

from schemas.exact_json import JsonValue, dumps, loads
from workers.logic.variables.templates import Template, parse_template

#: Larger bodies are parsed each time, so that a full cache stays below some ten megabytes.
CACHED_BYTES = 2048


def template_of(value: JsonValue) -> Template:
    """Parse as `parse_template` does, once for equal values."""
    data = dumps(value)
    return parse_template(value) if len(data) > CACHED_BYTES else _parsed(data)


@lru_cache(maxsize=2048)
def _parsed(data: bytes) -> Template:
    return parse_template(loads(data))
