"""Entry names, found without a search: what overlays a variable, what stands in a frame, a namespace's keys."""

from functools import lru_cache
from typing import Final

from workers.logic.variables import entries

_Names = dict[str, None]
_NOTHING: Final[_Names] = {}
#: First letters of the entries that are ever looked for in groups.
_GROUPED = frozenset("vwngk")


class EntryIndex:
    """Knows the names of the entries that are there; their values are elsewhere."""

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names: dict[str, _Names] = {}

    def note(self, entry: str) -> None:
        """Take in the name of an entry that is there now."""
        if entry[0] in _GROUPED:
            for group in _groups_of(entry):
                self._names.setdefault(group, {})[entry] = None

    def forget(self, entry: str) -> None:
        """Take out the name of an entry that went away."""
        if entry[0] in _GROUPED:
            for group in _groups_of(entry):
                names = self._names.setdefault(group, {})
                names.pop(entry, None)
                if not names:
                    del self._names[group]

    def below(self, entry: str) -> _Names:
        """Return the entries that overlay parts of the variable `entry`."""
        return self._names.get(entry, _NOTHING)

    def in_frame(self, frame: str) -> list[str]:
        """Return the variables, nodes and loops of one iteration, in the order of their names."""
        return sorted(self._names.get(_frame(entries.join(frame)), ()))

    def in_namespace(self, namespace: str) -> list[str]:
        """Return the entries of a scratchpad namespace, in the order of their names."""
        return sorted(self._names.get(_namespace(entries.join(namespace)), ()))


@lru_cache(maxsize=65536)
def _groups_of(entry: str) -> tuple[str, ...]:
    """Return what an entry is found by: its ancestors, its frame, its namespace."""
    match entry[0]:
        case "v":
            return _ancestors(entry, entry.find("/", 2))
        case "w":
            frame_end = entry.index("/", 2)
            return (_frame(entry[2:frame_end]), *_ancestors(entry, entry.find("/", frame_end + 1)))
        case "n" | "g":
            frame_end = entry.index("/", 2)
            return (_frame(entry[2:frame_end]),) if frame_end > 2 else ()
        case _:  # "k"
            return (_namespace(entry[2 : entry.index("/", 2)]),)


def _ancestors(entry: str, end: int) -> tuple[str, ...]:
    found: list[str] = []
    while end > 0:
        found.append(entry[:end])
        end = entry.find("/", end + 1)
    return tuple(found)


# No entry begins like these.


def _frame(escaped: str) -> str:
    return f"frame {escaped}"


def _namespace(escaped: str) -> str:
    return f"namespace {escaped}"
