"""`{{a.b || c.d}}`: how a text names a place in the store, and what is found there.

The grammar, with examples and every error, is in docs/references.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from schemas.errors import Rejection
from schemas.exact_json import JsonValue

#: Longer texts are parsed each time, so that a full cache stays below some ten megabytes.
CACHED_CHARACTERS = 1024
#: A list index of more digits is out of range of any list that fits into a store.
_INDEX_DIGITS = 9
#: More than the deepest value has, with the names that lead to it; looking a path up costs the square of its length.
_MAX_SEGMENTS = 100
#: How much of a text an error shows around the place that is wrong.
_EXCERPT_CHARACTERS = 40


class Missing(Enum):
    """The type of `MISSING`: nothing is stored at a path, which is not the same as a stored null."""

    MISSING = "missing"


MISSING: Final[Literal[Missing.MISSING]] = Missing.MISSING


@dataclass(frozen=True, slots=True)
class Path:
    """A place in the store: a variable's name, then object keys and list indexes."""

    segments: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.segments)


@dataclass(frozen=True, slots=True)
class Read:
    """What one reference did: the path that gave its value, or its first path where none is stored.

    `found`: something is stored there, be it null. `fallback`: it was not the first path.
    """

    path: str
    found: bool
    fallback: bool


@dataclass(frozen=True, slots=True)
class Reference:
    """The inside of `{{ }}`: paths in order of preference, at least one."""

    paths: tuple[Path, ...]
    #: What resolving can report, and the hash, are made once: a reference is parsed once and resolved often.
    hits: tuple[Read, ...] = field(init=False, repr=False, compare=False)
    miss: Read = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = [str(path) for path in self.paths]
        hits = tuple(Read(name, found=True, fallback=position > 0) for position, name in enumerate(names))
        object.__setattr__(self, "hits", hits)
        object.__setattr__(self, "miss", Read(names[0], found=False, fallback=False))
        object.__setattr__(self, "_hash", hash(self.paths))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return " || ".join(map(str, self.paths))


Lookup: TypeAlias = Callable[[Path], JsonValue | Missing]


def parse_reference(text: str) -> Reference:
    """Parse the inside of `{{ }}`. Raises `Rejection` (`template_invalid`) that names the place."""
    if len(text) > CACHED_CHARACTERS:
        return parse_reference_at(text, 0, len(text))
    return _parse_cached(text)


def parse_reference_at(text: str, start: int, end: int) -> Reference:
    """Parse `text[start:end]`; errors count their place from the beginning of `text`."""
    paths: list[Path] = []
    while True:
        stop = text.find("||", start, end)
        if stop < 0:
            paths.append(_parse_path(text, start, end))
            return Reference(tuple(paths))
        paths.append(_parse_path(text, start, stop))
        start = stop + 2


@lru_cache(maxsize=4096)
def _parse_cached(text: str) -> Reference:
    return parse_reference_at(text, 0, len(text))


def _parse_path(text: str, start: int, end: int) -> Path:
    if text.count(".", start, end) >= _MAX_SEGMENTS:
        raise template_invalid(text, start, f"a path of more than {_MAX_SEGMENTS} names; nothing is nested so deep")
    segments: list[str] = []
    for raw in text[start:end].split("."):
        segment = raw.strip()
        if not segment:
            raise template_invalid(text, start, "a name is missing here")
        for offset, character in enumerate(segment, start + raw.index(segment)):
            if character in "{}|":
                raise template_invalid(text, offset, f"a name cannot hold {character!r}; fallbacks are joined by ||")
            if character < " ":
                raise template_invalid(text, offset, "a name cannot hold a control character")
        segments.append(segment)
        start += len(raw) + 1
    return Path(tuple(segments))


def template_invalid(text: str, place: int, what: str) -> Rejection:
    """Build the error for a reference that is wrong at `text[place]`."""
    return Rejection("template_invalid", pointing_at(text, place, what))


def pointing_at(text: str, place: int, what: str) -> str:
    """Say where in a text something is wrong; people count characters from 1."""
    begin = max(0, place - _EXCERPT_CHARACTERS // 2)
    excerpt = text[begin : begin + _EXCERPT_CHARACTERS]
    before = "…" if begin else ""
    after = "…" if begin + _EXCERPT_CHARACTERS < len(text) else ""
    return f"at character {place + 1} of {before}{excerpt!r}{after}: {what}"


def descend(value: JsonValue, segments: Sequence[str]) -> JsonValue | Missing:
    """Go into objects by key and into lists by decimal index (`0`, `17`; not `-1`, `01`); never raises."""
    for segment in segments:
        if isinstance(value, dict):
            if segment not in value:
                return MISSING
            value = value[segment]
        elif isinstance(value, list):
            index = _list_index(segment)
            if index is None or index >= len(value):
                return MISSING
            value = value[index]
        else:
            return MISSING
    return value


def _list_index(segment: str) -> int | None:
    if len(segment) > _INDEX_DIGITS or not (segment.isascii() and segment.isdigit()):
        return None
    return None if segment[0] == "0" and len(segment) > 1 else int(segment)


def resolve(reference: Reference, lookup: Lookup) -> tuple[JsonValue, Read]:
    """Give the first value that is not null, else null, and how it was found. Never raises."""
    stored: Read | None = None
    for path, hit in zip(reference.paths, reference.hits, strict=True):
        value = lookup(path)
        if value is MISSING:
            continue
        if value is not None:
            return value, hit
        stored = stored or hit
    return None, stored or reference.miss


def overlaid(value: JsonValue | Missing, path: list[str], part: JsonValue) -> JsonValue:
    """Return `value` with `part` at `path`; objects on the way are copied, never changed."""
    if not path:
        return part
    base = dict(value) if isinstance(value, dict) else {}
    base[path[0]] = overlaid(base.get(path[0], MISSING), path[1:], part)
    return base
