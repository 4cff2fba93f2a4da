"""JSON whose texts hold `{{references}}` -> JSON with the stored values in their places.

A text that is exactly one reference becomes the value with its type; a reference among other
characters becomes text. What came from the store is never looked at for references again.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from schemas.errors import Rejection
from schemas.exact_json import JsonValue, dumps
from schemas.limits import DEFAULT_LIMITS
from workers.logic.variables.references import (
    CACHED_CHARACTERS,
    Lookup,
    Path,
    Read,
    Reference,
    parse_reference_at,
    resolve,
    template_invalid,
)

#: `{{"{{"}}` writes two braces, as in Jinja and Go templates; a name cannot hold a brace, so it means nothing else.
_WRITTEN_BRACES = re.compile(r"""\{\{\s*(?:"\{\{"|'\{\{')\s*\}\}""")
#: Seed 001's forms. Any other text in single braces stays as it is: JSON, code and prose hold many.
_SINGLE_BRACES = re.compile(
    r"""\{\s*
    (?P<path>
      (?:last_output_parsed|last_output|memory_manager|memory|state|input|event|outputs)
      (?:\.[^\s.{}|:,"'](?:[^\n\r.{}|:,"']*[^\s.{}|:,"'])?)*
    )
    \s*\}""",
    re.VERBOSE,
)


# The shapes are not frozen: a frozen dataclass takes three times as long to make, and they are made for each event.
@dataclass(slots=True)
class _Constant:
    """A part without references; it is handed out as it is, so nobody may change it."""

    value: JsonValue


@dataclass(slots=True)
class _Text:
    """A text with references in it."""

    parts: tuple[str | Reference, ...]


@dataclass(slots=True)
class _Object:
    fields: tuple[tuple[str, "_Shape"], ...]


@dataclass(slots=True)
class _List:
    items: tuple["_Shape", ...]


_Shape: TypeAlias = "_Constant | Reference | _Text | _Object | _List"
_ShapeOfText: TypeAlias = "_Constant | Reference | _Text"


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template; `references` in order of appearance, each once. Hold it and render it often."""

    references: tuple[Reference, ...]
    shape: _Shape

    def render(
        self, lookup: Lookup, max_bytes: int = DEFAULT_LIMITS.result_bytes
    ) -> tuple[JsonValue, tuple[Read, ...]]:
        """Put what `lookup` finds into the places of the references; each is looked up once.

        Parts without references are shared with the template: treat the result as immutable. Raises
        `Rejection` (`result_too_large`) as soon as what was put in has surely outgrown `max_bytes`, so that
        a small template cannot blow up a large variable; the exact size of a result is the caller's check.
        """
        shape = self.shape
        if isinstance(shape, _Constant):
            return shape.value, ()
        if isinstance(shape, Reference):
            value, read = resolve(shape, lookup)
            return value, (read,)
        resolved = {reference: resolve(reference, lookup) for reference in self.references}
        value = _Rendering(resolved, max_bytes).fill(shape)
        return value, tuple([read for _, read in resolved.values()])


class _Rendering:
    """One pass over one template: what its references gave, and how much may still be put in."""

    __slots__ = ("_left", "_max_bytes", "_resolved")

    def __init__(self, resolved: dict[Reference, tuple[JsonValue, Read]], max_bytes: int) -> None:
        self._resolved = resolved
        self._max_bytes = max_bytes
        self._left = max_bytes

    def fill(self, shape: _Shape) -> JsonValue:
        if isinstance(shape, _Constant):
            return shape.value
        if isinstance(shape, Reference):
            value = self._resolved[shape][0]
            self._spend(value)
            return value
        if isinstance(shape, _Text):
            return "".join([part if isinstance(part, str) else self._embed(part) for part in shape.parts])
        if isinstance(shape, _Object):
            return {key: self.fill(part) for key, part in shape.fields}
        return [self.fill(part) for part in shape.items]

    def _embed(self, reference: Reference) -> str:
        text = as_text(self._resolved[reference][0])
        self._spend(text)
        return text

    def _spend(self, value: JsonValue) -> None:
        if isinstance(value, str):
            self._left -= len(value)
        elif isinstance(value, (dict, list)):
            self._left -= len(dumps(value))
        if self._left < 0:
            raise Rejection(
                "result_too_large",
                f"the references give more than the {self._max_bytes} bytes a result may have; "
                "reference smaller parts, or a variable that holds a link",
            )


def as_text(value: JsonValue) -> str:
    """Give a value as it stands inside of a text: null is empty, objects and lists are compact JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else dumps(value).decode()


def parse_template(value: JsonValue) -> Template:
    """Parse any JSON; every text in it may hold `{{references}}`, object keys stay as they are.

    Raises `Rejection` (`template_invalid`) that names the place in the text, and the text's place in the value.
    """
    return _template(value, _text_shape)


def parse_scratchpad_template(value: JsonValue) -> Template:
    """Parse as `parse_template` does, and seed 001's `{last_output}`, `{state.x}`, `{outputs.NODE.parsed}`... too."""
    return _template(value, _scratchpad_shape)


def reference_template(reference: Reference) -> Template:
    """Give the template that is this one reference."""
    return Template((reference,), reference)


def _template(value: JsonValue, shape_of_text: Callable[[str], _ShapeOfText]) -> Template:
    references: dict[Reference, None] = {}
    try:
        shape = _shape(value, shape_of_text, references)
    except Rejection as rejection:
        place = next(_faults(value, shape_of_text), ())
        if not place:
            raise
        raise Rejection(rejection.reason, f"in {'.'.join(place)!r}, {rejection.message}") from rejection
    return Template(tuple(references), shape)


def _shape(value: JsonValue, shape_of_text: Callable[[str], _ShapeOfText], references: dict[Reference, None]) -> _Shape:
    if isinstance(value, str):
        shape = shape_of_text(value)
        if isinstance(shape, Reference):
            references[shape] = None
        elif isinstance(shape, _Text):
            references.update((part, None) for part in shape.parts if isinstance(part, Reference))
        return shape
    if isinstance(value, dict):
        fields = [(key, _shape(part, shape_of_text, references)) for key, part in value.items()]
        constant = all(_keeps(part, value[key]) for key, part in fields)
        return _Constant(value) if constant else _Object(tuple(fields))
    if isinstance(value, list):
        items = [_shape(part, shape_of_text, references) for part in value]
        return _Constant(value) if all(map(_keeps, items, value)) else _List(tuple(items))
    return _Constant(value)


def _keeps(shape: _Shape, value: JsonValue) -> bool:
    """Tell whether a part is handed out as it was written (written braces make another text)."""
    return isinstance(shape, _Constant) and shape.value is value


def _faults(
    value: JsonValue, shape_of_text: Callable[[str], _ShapeOfText], place: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Find the places of the texts that cannot be parsed; only errors pay for knowing where they are."""
    if isinstance(value, str):
        try:
            shape_of_text(value)
        except Rejection:
            yield place
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _faults(part, shape_of_text, (*place, key))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _faults(part, shape_of_text, (*place, str(index)))


def _text_shape(text: str) -> _ShapeOfText:
    if "{{" not in text:
        return _Constant(text)
    return _parse_text(text) if len(text) > CACHED_CHARACTERS else _parse_text_cached(text)


def _scratchpad_shape(text: str) -> _ShapeOfText:
    if "{" not in text:
        return _Constant(text)
    return _parse_scratchpad(text) if len(text) > CACHED_CHARACTERS else _parse_scratchpad_cached(text)


def _parse_text(text: str) -> _ShapeOfText:
    return _joined(_double_braces(text))


def _parse_scratchpad(text: str) -> _ShapeOfText:
    parts: list[str | Reference] = []
    for part in _double_braces(text):
        parts.extend(_single_braces(part) if isinstance(part, str) else [part])
    return _joined(parts)


_parse_text_cached = lru_cache(maxsize=4096)(_parse_text)
_parse_scratchpad_cached = lru_cache(maxsize=1024)(_parse_scratchpad)


def _double_braces(text: str) -> list[str | Reference]:
    """Split a text at its `{{references}}`."""
    parts: list[str | Reference] = []
    done = 0
    while (opening := text.find("{{", done)) >= 0:
        # Of a longer run the last two braces open, so that `{{{name}}: 1}` puts a value into braces.
        while text.startswith("{", opening + 2):
            opening += 1
        parts.append(text[done:opening])
        written = _WRITTEN_BRACES.match(text, opening)
        if written:
            parts.append("{{")
            done = written.end()
            continue
        closing = text.find("}}", opening + 2)
        if closing < 0:
            raise template_invalid(text, opening, """no }} closes this {{; write {{"{{"}} for the braces themselves""")
        parts.append(parse_reference_at(text, opening + 2, closing))
        done = closing + 2
    parts.append(text[done:])
    return parts


def _single_braces(text: str) -> list[str | Reference]:
    """Split a text at seed 001's `{forms}`."""
    parts: list[str | Reference] = []
    done = 0
    for match in _SINGLE_BRACES.finditer(text):
        parts += text[done : match.start()], Reference((Path(tuple(match["path"].split("."))),))
        done = match.end()
    parts.append(text[done:])
    return parts


def _joined(parts: list[str | Reference]) -> _ShapeOfText:
    filled = [part for part in parts if part != ""]
    if not any(isinstance(part, Reference) for part in filled):
        return _Constant("".join(part for part in filled if isinstance(part, str)))
    if len(filled) == 1 and isinstance(filled[0], Reference):
        return filled[0]
    return _Text(tuple(filled))
