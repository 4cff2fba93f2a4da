"""The scratchpad's operations (seed 001's Memory Manager): a namespace's keys -> what changes and what is answered.

A namespace is its keys and values. Every operation is a function of what is there and what is asked;
it changes nothing itself. `null` under a key counts as nothing, as it does for references.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue
from schemas.limits import Limits
from workers.logic.variables.references import Reference, parse_reference
from workers.logic.variables.templates import Template, as_text, parse_scratchpad_template, reference_template

DEFAULT_NAMESPACE = "default"
DEFAULT_INPUT_KEY = "last_output"
_CONTROL = re.compile(r"[\x00-\x1f]")


@dataclass(frozen=True, slots=True)
class Effect:
    """What an operation does: keys to set and keys to remove in its namespace, and what it answers.

    `output` is passed downstream as `last_output`; `details` (`operation`, `namespace`, `key`, counts)
    is what `last_output_parsed` and `memory_manager` show.
    """

    written: Mapping[str, JsonValue]
    removed: tuple[str, ...]
    details: JsonObject
    output: JsonValue


def write(namespace: str, values: Mapping[str, JsonValue], key: str, value: JsonValue, limits: Limits) -> Effect:
    """Create or replace one key; passes its details on. Raises `Rejection` (`name_invalid`)."""
    _check_names(namespace, key, limits)
    details = _details("write", namespace, key) | {"replaced": key in values}
    return Effect({key: value}, (), details, details)


def append(
    namespace: str,
    values: Mapping[str, JsonValue],
    key: str,
    value: JsonValue,
    limits: Limits,
    *,
    max_items: int | None = None,
) -> Effect:
    """Add one item to a list and keep the last `max_items`; passes its details with the list on.

    What is no list becomes the first item; a list that is added stays one item. Raises `Rejection`
    (`name_invalid`, `max_items_invalid`).
    """
    _check_names(namespace, key, limits)
    kept_items = _bounded_items(max_items, limits)
    stored = values.get(key)
    earlier = stored if isinstance(stored, list) else [] if stored is None else [stored]
    items = [*earlier, value]
    kept = items[-kept_items:]
    details = _details("append", namespace, key) | {
        "count": len(kept),
        "dropped": len(items) - len(kept),
        "max_items": kept_items,
        "value": kept,
    }
    return Effect({key: kept}, (), details, details)


def read(namespace: str, values: Mapping[str, JsonValue], key: str, limits: Limits) -> Effect:
    """Pass one value on (null where there is none), or the whole namespace as an object when `key` is empty."""
    _check_names(namespace, key or None, limits)
    if not key:
        details = _details("read", namespace, None) | {"found": bool(values), "count": len(values)}
        return Effect({}, (), details, dict(values))
    return Effect({}, (), _details("read", namespace, key) | {"found": key in values}, values.get(key))


def summarize(
    namespace: str,
    values: Mapping[str, JsonValue],
    key: str,
    limits: Limits,
    *,
    max_items: int | None = None,
    summary_key: str | None = None,
    max_chars: int | None = None,
) -> Effect:
    """Format one value as text, cut to `max_chars` code points, store it under `summary_key` and pass it on.

    A list becomes its last `max_items` items, numbered from 1; an object compact JSON; a text stays; nothing
    becomes the empty text. An empty `key` means the whole namespace, without the summary itself, so that
    summarizing twice gives the same. Raises `Rejection` (`name_invalid`, `max_items_invalid`, `max_chars_invalid`).
    """
    _check_names(namespace, key or None, limits)
    target = summary_key or (f"{key}_summary" if key else "summary")
    _check_name("summary key", target, limits)
    numbered_items = _bounded_items(max_items, limits)
    length = _bounded_characters(max_chars, limits)
    selected = values.get(key) if key else {name: value for name, value in values.items() if name != target} or None
    whole = _formatted(selected, numbered_items)
    text = whole[:length]
    details = _details("summarize", namespace, key or None) | {
        "summary_key": target,
        "characters": len(text),
        "truncated": len(text) < len(whole),
    }
    return Effect({target: text}, (), details, text)


def clear(namespace: str, values: Mapping[str, JsonValue], key: str, limits: Limits) -> Effect:
    """Remove one key, or all of the namespace's when `key` is empty; passes its details on."""
    _check_names(namespace, key or None, limits)
    removed = tuple(name for name in values if not key or name == key)
    details = _details("clear", namespace, key or None) | {"removed": len(removed)}
    return Effect({}, removed, details, details)


def parse_value(value: JsonValue, input_key: str | None = None) -> Template:
    """Give the template of what write and append store: `value`, or where that is null or `""`, `input_key`'s path.

    Raises `Rejection` (`template_invalid`).
    """
    if value is None or value == "":
        return reference_template(parse_input_key(input_key))
    return parse_scratchpad_template(value)


def parse_input_key(input_key: str | None) -> Reference:
    """Read a source path such as `event.body`; it may stand in `{ }` or `{{ }}`. Empty means `last_output`."""
    path = (input_key or "").strip() or DEFAULT_INPUT_KEY
    for opening, closing in (("{{", "}}"), ("{", "}")):
        if path.startswith(opening) and path.endswith(closing):
            return parse_reference(path[len(opening) : -len(closing)])
    return parse_reference(path)


def _details(operation: str, namespace: str, key: str | None) -> JsonObject:
    return {"operation": operation, "namespace": namespace, "key": key}


def _formatted(value: JsonValue, max_items: int) -> str:
    if isinstance(value, list):
        return "\n".join(f"{number}. {as_text(item)}" for number, item in enumerate(value[-max_items:], 1))
    return as_text(value)


def _bounded_items(max_items: int | None, limits: Limits) -> int:
    if max_items is None:
        return limits.scratchpad_default_items
    if not 1 <= max_items <= limits.scratchpad_max_items:
        raise Rejection(
            "max_items_invalid",
            f"max_items is {max_items}; give 1 to {limits.scratchpad_max_items}, or leave it out for "
            f"{limits.scratchpad_default_items}",
        )
    return max_items


def _bounded_characters(max_chars: int | None, limits: Limits) -> int:
    if max_chars is None:
        return limits.summary_default_characters
    if max_chars < 1:
        raise Rejection(
            "max_chars_invalid",
            f"max_chars is {max_chars}; give at least 1, or leave it out for {limits.summary_default_characters}",
        )
    return max_chars


def _check_names(namespace: str, key: str | None, limits: Limits) -> None:
    _check_name("namespace", namespace, limits)
    if key is not None:
        _check_name("key", key, limits)


def _check_name(what: str, name: str, limits: Limits) -> None:
    """Names are matched exactly; one with a dot works too, though no `{memory.NAMESPACE.KEY}` can reach it."""
    if not 0 < len(name) <= limits.name_characters or _CONTROL.search(name):
        raise Rejection(
            "name_invalid",
            f"the {what} {name[:40]!r} needs 1 to {limits.name_characters} characters, no control characters "
            f"(it has {len(name)})",
        )
