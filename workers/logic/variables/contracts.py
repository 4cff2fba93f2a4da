"""What a reusable workflow takes and gives (seed 000's contract of a Sub Use Case)."""

from collections.abc import Callable, Mapping
from typing import Final, cast

from schemas.errors import Rejection
from schemas.exact_json import JsonObject, JsonValue, dumps
from workers.logic.memory.types import TypeRegistry

#: The seed's names for types, beside those of durable memory (`String`, `Decimal[]`...).
_ALSO_CALLED: Final[Mapping[str, str]] = {
    "string": "String",
    "number": "Decimal",
    "integer": "Integer",
    "boolean": "Boolean",
}
_STRUCTURES: Final[Mapping[str, Callable[[JsonValue], bool]]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
}
_TYPES: Final = TypeRegistry()
_SHOWN_BYTES = 60


def broken_promise(meta: Mapping[str, JsonValue], side: str, values: JsonObject) -> str | None:
    """Tell what the contract in `meta` says of `inputs` or `outputs` and `values` do not keep; None if they do."""
    contract = meta.get("contract")
    fields = contract.get(side) if isinstance(contract, dict) else None
    what = side.removesuffix("s")
    for field in cast("list[JsonObject]", fields or []):
        name, type_ = str(field["name"]), str(field["type"])
        value = values.get(name)
        if value is None and field.get("required"):
            return f"the contract requires the {what} {name!r}, which is missing"
        if value is not None and not _conforms(value, type_):
            shown = dumps(value)[:_SHOWN_BYTES].decode(errors="replace")
            return f"the contract says that the {what} {name!r} is of type {type_}; it is {shown}"
    return None


def _conforms(value: JsonValue, type_: str) -> bool:
    structure = _STRUCTURES.get(type_.lower())
    if structure is not None:
        return structure(value)
    try:
        _TYPES.check(value, _ALSO_CALLED.get(type_.lower(), type_))
    except Rejection as rejection:
        # A type that only the memory worker knows (a registered object type) is not checked here.
        return rejection.reason == "type_unknown"
    return True
