"""The names of an execution's entries: one flat map holds everything that is known of it.

| entry | value |
|---|---|
| `v/NAME[/SEGMENT...]` | a variable of the execution; a deeper entry overlays its ancestor's value |
| `w/FRAME/NAME[/SEGMENT...]` | a variable of one loop iteration |
| `k/NAMESPACE/KEY` | a scratchpad value (seed 001) |
| `m` | what `execution.started` said: workflow, subjects, parent, output mapping, contract |
| `p`, `l`, `y` | `_prev`, `last_output` and `memory_manager`: where the value is, or the value |
| `n/FRAME/NODE` | how the latest request of a node ended |
| `q/REQUEST` | an open request: waiting, or sent and not yet answered |
| `d/DOMAIN` | the latest open request of an address or scratchpad namespace, and the version last seen there |
| `g/FRAME/NODE` | an opened loop |
| `c` | the `execution.completed` that waits until nothing is outstanding |
| `e` | how the execution ended: status, output, error |
| `o/ADDRESS` | a simulation's overlay of durable memory |

Segments are separated by `/`, which stands as `%2F` inside of one (and `%` as `%25`).
"""

from collections.abc import Sequence
from functools import lru_cache

META = "m"
PREVIOUS = "p"
LAST = "l"
COMPLETION = "c"
FINAL = "e"
MEMORY_MANAGER = "y"
REQUEST = "q/"
#: Prefixes whose entries people see as written variables.
PUBLIC_PREFIXES = ("v/", "w/", "k/")
#: What a fork begins with: all that the source held, but not what it was waiting for.
FORKED_PREFIXES = ("v/", "w/", "k/", "p", "l", "y", "n/", "g/")


@lru_cache(maxsize=65536)
def _escape(segment: str) -> str:
    return segment.replace("%", "%25").replace("/", "%2F")


def _unescape(segment: str) -> str:
    return segment.replace("%2F", "/").replace("%25", "%")


def join(*segments: str) -> str:
    """Return the entry of `segments`."""
    return "/".join(map(_escape, segments))


def split(entry: str) -> list[str]:
    """Return the segments of `entry`."""
    return [_unescape(part) for part in entry.split("/")] if "%" in entry else entry.split("/")


def variable(frame: str, segments: Sequence[str]) -> str:
    """Return the entry of the variable at `segments` in `frame` (empty: the execution's own scope)."""
    return join("w", frame, *segments) if frame else join("v", *segments)


def node(frame: str, node_id: str) -> str:
    """Return the entry of a node's state."""
    return join("n", frame, node_id)


def loop(frame: str, node_id: str) -> str:
    """Return the entry of an opened loop."""
    return join("g", frame, node_id)


def domain(name: str) -> str:
    """Return the entry of an ordering domain: an address, or a scratchpad namespace."""
    return join("d", name)


def request(key: str) -> str:
    """Return the entry of an open request."""
    return REQUEST + key


def scratchpad(namespace: str, key: str) -> str:
    """Return the entry of a scratchpad value."""
    return join("k", namespace, key)


def overlay(address: str) -> str:
    """Return the entry of an item that a simulation holds."""
    return join("o", address)


def inner_frame(frame: str, node_id: str, index: int) -> str:
    """Return the frame of iteration `index` of the loop `node_id` that stands in `frame`."""
    return f"{frame}>{node_id}[{index}]" if frame else f"{node_id}[{index}]"


def outward(frame: str) -> list[str]:
    """Return `frame`, the frames around it, and last the execution's own scope."""
    frames = [frame]
    while frame:
        frame = frame.rpartition(">")[0]
        frames.append(frame)
    return frames
