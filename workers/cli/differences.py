"""Two stores -> the paths that differ."""

from collections.abc import Mapping

from schemas.exact_json import JsonValue, canonical


def differences(
    before: Mapping[str, JsonValue], after: Mapping[str, JsonValue], path: str = ""
) -> list[tuple[str, JsonValue, JsonValue]]:
    """Return (path, before, after) for each leaf that differs; a side that lacks it is None.

    Objects are compared field by field, everything else whole and exactly: `100.0` is not `100.00`.
    """
    found: list[tuple[str, JsonValue, JsonValue]] = []
    for name in [*before, *(name for name in after if name not in before)]:
        inner = f"{path}.{name}" if path else name
        old, new = before.get(name), after.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            found += differences(old, new, inner)
        elif canonical(old) != canonical(new):
            found.append((inner, old, new))
    return found
