"""Entry names, found without a search: what overlays a variable, what stands in a frame, a namespace's keys."""

from collections.abc import Iterator

from workers.logic.variables import entries

_Names = dict[str, None]
#: First letters of the entries that are ever looked for in groups.
_GROUPED = frozenset("vwngk")


class EntryIndex:
    """Knows the names of the entries that are there; their values are elsewhere."""

    __slots__ = ("_below", "_in_frame", "_in_namespace")

    def __init__(self) -> None:
        self._below: dict[str, _Names] = {}
        self._in_frame: dict[str, _Names] = {}
        self._in_namespace: dict[str, _Names] = {}

    def note(self, entry: str) -> None:
        """Take in the name of an entry that is there now."""
        if entry[0] not in _GROUPED:
            return
        for index, group in self._groups(entry):
            index.setdefault(group, {})[entry] = None

    def forget(self, entry: str) -> None:
        """Take out the name of an entry that went away."""
        if entry[0] not in _GROUPED:
            return
        for index, group in self._groups(entry):
            names = index.setdefault(group, {})
            names.pop(entry, None)
            if not names:
                del index[group]

    def _groups(self, entry: str) -> Iterator[tuple[dict[str, _Names], str]]:
        match entry[0]:
            case "v":
                end = entry.find("/", 2)
                if end > 0:
                    yield from self._ancestors(entry, end)
            case "w":
                frame_end = entry.index("/", 2)
                yield self._in_frame, entry[2:frame_end]
                yield from self._ancestors(entry, entry.find("/", frame_end + 1))
            case "n" | "g":
                frame_end = entry.index("/", 2)
                if frame_end > 2:
                    yield self._in_frame, entry[2:frame_end]
            case _:  # "k"
                yield self._in_namespace, entry[2 : entry.index("/", 2)]

    def _ancestors(self, entry: str, end: int) -> Iterator[tuple[dict[str, _Names], str]]:
        while end > 0:
            yield self._below, entry[:end]
            end = entry.find("/", end + 1)

    def below(self, entry: str) -> _Names:
        """Return the entries that overlay parts of the variable `entry`."""
        return self._below.get(entry, {})

    def in_frame(self, frame: str) -> list[str]:
        """Return the variables, nodes and loops of one iteration, in the order of their names."""
        return sorted(self._in_frame.get(entries.join(frame), ()))

    def in_namespace(self, namespace: str) -> list[str]:
        """Return the entries of a scratchpad namespace, in the order of their names."""
        return sorted(self._in_namespace.get(entries.join(namespace), ()))
