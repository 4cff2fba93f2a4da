from importlib.metadata import EntryPoint

import pytest

from schemas.errors import Rejection, UsageError
from schemas.exact_json import dumps, loads
from workers.logic.memory.types import TypeRegistry
from workers.runtime import plugins

MONEY = {"type": "object", "required": ["amount"], "properties": {"amount": {"type": "number", "multipleOf": 0.01}}}


def money_from_decimal() -> object:
    return {("Decimal", "Money"): lambda value: {"amount": value}}


BROKEN: list[int] = []


def _installed(monkeypatch: pytest.MonkeyPatch, *points: EntryPoint) -> TypeRegistry:
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point for point in points if point.group == group])
    return plugins.load_types()


def _point(name: str, what: str, group: str = plugins.TYPES_GROUP) -> EntryPoint:
    return EntryPoint(name, f"{__name__}:{what}", group)


def test_a_registered_type_is_checked_by_its_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    types = _installed(monkeypatch, _point("Money", "MONEY"))

    types.check([{"amount": 5}], "Money[]")
    with pytest.raises(Rejection, match="amount"):
        types.check({}, "Money")


def test_a_registered_conversion_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    types = _installed(
        monkeypatch,
        _point("Money", "MONEY"),
        _point("money", "money_from_decimal", plugins.CONVERSIONS_GROUP),
    )

    assert types.read_as([1, 2], "Decimal[]", "Money[]") == ([{"amount": 1}, {"amount": 2}], "Decimal[]")
    assert types.read_as(1, "Integer", "String") == ("1", "Integer")


def test_a_quantity_is_read_as_its_exact_number(monkeypatch: pytest.MonkeyPatch) -> None:
    types = _installed(monkeypatch)
    doses = loads(b'[{"value":2.50,"unit":"mg"},{"value":100.00}]')

    types.check(doses, "Quantity[]")
    assert dumps(types.read_as(doses, "Quantity[]", "Decimal[]")) == b'[[2.50,100.00],"Quantity[]"]'
    with pytest.raises(Rejection, match="value"):
        types.check({"unit": "mg"}, "Quantity")


def test_a_plug_in_replaces_a_type_that_comes_with_the_product(monkeypatch: pytest.MonkeyPatch) -> None:
    types = _installed(monkeypatch, EntryPoint("Quantity", f"{__name__}:MONEY", plugins.TYPES_GROUP))

    types.check({"amount": 5}, "Quantity")
    for stored in ({"amount": 5}, 5):
        with pytest.raises(Rejection, match="no number as its value"):
            types.read_as(stored, "Quantity", "Decimal")


@pytest.mark.parametrize(
    ("point", "message"),
    [
        (_point("Money", "NOTHING"), "cannot be loaded"),
        (_point("Money", "BROKEN"), "no JSON Schema"),
        (_point("Integer", "MONEY"), "which has a meaning"),
        (_point("x", "BROKEN", plugins.CONVERSIONS_GROUP), "no mapping"),
    ],
)
def test_a_plugin_that_cannot_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, point: EntryPoint, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        _installed(monkeypatch, point)
