"""Entry points -> the types and conversions of values that plug-ins add.

`tallystick.types`: the name is the type's, the object a JSON Schema (a dict, or a function that returns one).
`tallystick.conversions`: a mapping of (stored type, wanted type) to a function of one JSON value, or a function that
returns one; it raises `ValueError` for a value that has no such form.
"""

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from schemas.errors import UsageError
from schemas.exact_json import JsonObject, dumps, loads
from workers.logic.memory.conversions import BUILT_IN, BUILT_IN_OBJECTS
from workers.logic.memory.types import PRIMITIVES, Check, Convert, TypeRegistry, json_schema_check

TYPES_GROUP = "tallystick.types"
CONVERSIONS_GROUP = "tallystick.conversions"


def load_types() -> TypeRegistry:
    """Return what is installed. Raises `UsageError` naming the plug-in that cannot be used."""
    objects = {**BUILT_IN_OBJECTS, **{point.name: _object_type(point) for point in entry_points(group=TYPES_GROUP)}}
    conversions: dict[tuple[str, str], Convert] = dict(BUILT_IN)
    for point in entry_points(group=CONVERSIONS_GROUP):
        conversions.update(_conversions(point))
    return TypeRegistry(objects, conversions)


def _load(point: EntryPoint) -> object:
    try:
        loaded: object = point.load()
        return loaded() if callable(loaded) else loaded
    except Exception as error:
        # Whatever a plug-in raises: the person who installed it must hear which one it was.
        raise UsageError(f"the plug-in {point.name} ({point.value}) cannot be loaded: {error}") from error


def _object_type(point: EntryPoint) -> Check:
    if point.name in PRIMITIVES or point.name.endswith("[]"):
        raise UsageError(f"the plug-in {point.value} calls its type {point.name}, which has a meaning; rename it")
    schema = _load(point)
    if not isinstance(schema, dict):
        raise UsageError(f"the type {point.name} ({point.value}) is no JSON Schema object")
    try:
        # Read back exactly: bounds are compared with exact numbers.
        return json_schema_check(cast("JsonObject", loads(dumps(schema))))
    except ValueError as error:
        raise UsageError(f"the type {point.name} ({point.value}): {error}") from error


def _conversions(point: EntryPoint) -> Mapping[tuple[str, str], Convert]:
    loaded = _load(point)
    if not isinstance(loaded, Mapping):
        raise UsageError(f"the conversions {point.name} ({point.value}) are no mapping of (stored, wanted) types")
    return cast("Mapping[tuple[str, str], Convert]", loaded)
