"""The names of an execution's entries: one flat map holds everything that is known of it.

| entry | value |
|---|---|
| `v/NAME[/SEGMENT...]` | a variable of the execution; a deeper entry overlays its ancestor's value |
| `w/FRAME/NAME[/SEGMENT...]` | a variable of one loop iteration |
| `k/NAMESPACE/KEY` | a scratchpad value (seed 001) |
| `m` | what `execution.started` said: workflow, subjects, parent, output mapping, contract |
| `p`, `l`, `y` | `_prev`, `last_output` and `memory_manager`: where the value is, or the value |
| `n/FRAME/NODE` | how the latest request of a node ended, and what an activity that failed said of it |
| `q/REQUEST` | an open request as it arrived, or as it was sent |
| `b/REQUEST/AWAITED` | what the answer of one awaited request gave a request that waits for more |
| `d/ADDRESS` | the version of a memory item that the run saw last |
| `g/FRAME/NODE` | an opened loop |
| `c` | the `execution.completed` that waits until nothing is outstanding |
| `e` | how the execution ended: status, output, error |
| `o/ADDRESS` | a simulation's overlay of durable memory |
| `s/NUMBER` | what a simulation would have changed in durable memory, by the request's number |
| `x/NUMBER` | what the event before set free and could not carry out in one revision: a JSON text in pieces |

Segments are separated by `/`, which stands as `%2F` inside of one (and `%` as `%25`).
A frame is `OUTER[3]>INNER[0]`; in its node ids `%`, `>` and `[` are escaped in the same way.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import cast

from schemas.exact_json import JsonObject, loads

META = "m"
PREVIOUS = "p"
LAST = "l"
COMPLETION = "c"
FINAL = "e"
MEMORY_MANAGER = "y"
REQUEST = "q/"
ANSWERED = "b/"
EFFECT = "s/"
_REST = "x/"
_NODE = "n/"
#: Prefixes whose entries people see as written variables.
PUBLIC_PREFIXES = ("v/", "w/", "k/")
#: What a fork begins with: all that the source held, but not what it was waiting for.
FORKED_PREFIXES = ("v/", "w/", "k/", "p", "l", "y", "n/", "g/")
#: What a fork has seen of durable memory, where its source was no simulation.
SEEN = "d/"


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


@lru_cache(maxsize=65536)
def variable(frame: str, segments: tuple[str, ...]) -> str:
    """Return the entry of the variable at `segments` in `frame` (empty: the execution's own scope)."""
    return join("w", frame, *segments) if frame else join("v", *segments)


@lru_cache(maxsize=65536)
def node(frame: str, node_id: str) -> str:
    """Return the entry of a node's state."""
    return join("n", frame, node_id)


def failures(kept: Mapping[str, bytes | None]) -> list[JsonObject]:
    """Return the activities that failed, as `kept` tells them: node, frame in a loop, code and message."""
    found: list[JsonObject] = []
    for entry, data in kept.items():
        if entry.startswith(_NODE) and data is not None:
            error = cast("JsonObject", loads(data)).get("error")
            if isinstance(error, dict):
                _, frame, node_id = split(entry)
                found.append({"node_id": node_id, **({"frame": frame} if frame else {}), **error})
    return found


def loop(frame: str, node_id: str) -> str:
    """Return the entry of an opened loop."""
    return join("g", frame, node_id)


def seen(address: str) -> str:
    """Return the entry of the version that the run saw last at an address."""
    return join("d", address)


def request(key: str) -> str:
    """Return the entry of an open request."""
    return REQUEST + key


def answered(key: str, awaited: str) -> str:
    """Return the entry of what `awaited` gave the waiting request `key`."""
    return f"{ANSWERED}{key}/{awaited}"


def scratchpad(namespace: str, key: str) -> str:
    """Return the entry of a scratchpad value."""
    return join("k", namespace, key)


def overlay(address: str) -> str:
    """Return the entry of an item that a simulation holds."""
    return join("o", address)


def rest(number: int) -> str:
    """Return the entry of a piece of what an event has left to do."""
    return f"{_REST}{number}"


def effect(number: int) -> str:
    """Return the entry of what the request of that number would have changed in durable memory."""
    return f"{EFFECT}{number}"


# -- frames


def inner_frame(frame: str, node_id: str, index: int) -> str:
    """Return the frame of iteration `index` of the loop `node_id` that stands in `frame`."""
    return f"{loop_frames(frame, node_id)}{index}]"


def loop_frames(frame: str, node_id: str) -> str:
    """Return what the frames of all iterations of a loop begin with, and those of no other loop."""
    escaped = node_id.replace("%", "%25").replace(">", "%3E").replace("[", "%5B")
    return f"{frame}>{escaped}[" if frame else f"{escaped}["


def loop_of(frame: str) -> tuple[str, str]:
    """Return the frame in which the loop around `frame` stands, and the loop's node id."""
    outer, _, last = frame.rpartition(">")
    escaped = last[: last.rindex("[")]
    return outer, escaped.replace("%5B", "[").replace("%3E", ">").replace("%25", "%")


def outward(frame: str) -> list[str]:
    """Return `frame`, the frames around it, and last the execution's own scope."""
    frames = [frame]
    while frame:
        frame = frame.rpartition(">")[0]
        frames.append(frame)
    return frames
