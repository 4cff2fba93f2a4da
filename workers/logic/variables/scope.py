"""Where a reference looks: the frames around it, the reserved scopes, and the aliases of seed 001."""

from dataclasses import dataclass
from typing import Final

from schemas.exact_json import JsonValue
from workers.logic.variables import entries
from workers.logic.variables.references import MISSING, Missing, Path, descend
from workers.logic.variables.state import ExecutionState

#: Roots that point at what came last.
POINTERS: Final = frozenset({"_prev", "last_output", "last_output_parsed", "memory_manager"})
#: Aliases in whose paths the node or variable stands second: outputs.NODE..., state.NAME...
ALIASES: Final = frozenset({"outputs", "state"})


@dataclass(slots=True)
class Scope:
    """Looks paths up from a frame outward, in the store as it is now."""

    state: ExecutionState
    frame: str

    def __call__(self, path: Path) -> JsonValue | Missing:
        """Return the value at `path`, or `MISSING`."""
        segments = path.segments
        root = segments[0]
        if root in POINTERS:
            return _descend(self._pointed_by(root), segments[1:])
        if root in ALIASES and len(segments) > 1:
            return self.state.lookup(self.frame, (segments[1], *segments_within(path)))
        if root == "memory" and len(segments) > 1:
            return self._memory(segments[1:])
        return self.state.lookup(self.frame, segments)

    def _pointed_by(self, root: str) -> JsonValue | Missing:
        match root:
            case "_prev":
                return self._pointed(entries.PREVIOUS)
            case "memory_manager":
                return self._pointed(entries.MEMORY_MANAGER)
            case _:
                return self._pointed(entries.LAST, of_node=root == "last_output_parsed")

    def _pointed(self, entry: str, *, of_node: bool = False) -> JsonValue | Missing:
        """Follow a pointer; `of_node` asks for the node's own output where another value was passed on."""
        pointer = self.state.read(entry)
        if not isinstance(pointer, dict):
            return MISSING
        if "value" in pointer and not (of_node and "name" in pointer):
            return pointer["value"]
        if "previous" in pointer:
            return self._pointed(entries.PREVIOUS)
        return self.state.variable(str(pointer["frame"]), (str(pointer["name"]),))

    def _memory(self, rest: tuple[str, ...]) -> JsonValue | Missing:
        if len(rest) == 1:
            return self.state.namespace(rest[0]) or MISSING
        return _descend(self.state.scratchpad(rest[0], rest[1]), rest[2:])


def provider_name(path: Path) -> str:
    """Return the node or variable that a path depends on."""
    segments = path.segments
    return segments[1] if segments[0] in ALIASES and len(segments) > 1 else segments[0]


def segments_within(path: Path) -> tuple[str, ...]:
    """Return the way into the value of the node or variable that a path depends on."""
    segments = path.segments
    if segments[0] not in ALIASES:
        return segments[1:]
    # outputs.NODE.parsed.field: `parsed` is the node's output itself.
    return segments[3:] if segments[0] == "outputs" and segments[2:3] == ("parsed",) else segments[2:]


def _descend(value: JsonValue | Missing, rest: tuple[str, ...]) -> JsonValue | Missing:
    return value if value is MISSING else descend(value, rest)
