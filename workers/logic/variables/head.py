"""The head of an execution: the small part of its state that every event changes."""

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias, cast

from schemas.exact_json import dumps, loads

Status: TypeAlias = Literal["open", "running", "completed", "failed", "cancelled"]
Snapshot: TypeAlias = tuple[int, Status, int, int, str | None, str | None, bool]
_ENDED: Final = frozenset({"completed", "failed", "cancelled"})


@dataclass(slots=True, kw_only=True)
class Head:
    """`requests` counts what was numbered so far; `store_bytes` counts the values of all variables."""

    revision: int = 0
    status: Status = "open"
    requests: int = 0
    store_bytes: int = 0
    workflow: str | None = None
    parent_execution_id: str | None = None
    simulated: bool = False

    def to_json(self) -> bytes:
        """Write the head as the executions row and the table hold it."""
        return dumps(
            {
                "revision": self.revision,
                "status": self.status,
                "requests": self.requests,
                "store_bytes": self.store_bytes,
                "workflow": self.workflow,
                "parent_execution_id": self.parent_execution_id,
                "simulated": self.simulated,
            }
        )

    @classmethod
    def from_json(cls, data: bytes) -> "Head":
        """Read what `to_json` wrote."""
        return cls(**cast("dict[str, object]", loads(data)))  # type: ignore[arg-type]

    @property
    def ended(self) -> bool:
        """Say whether the execution has ended."""
        return self.status in _ENDED

    def snapshot(self) -> Snapshot:
        """Return what `restore` brings back; cheaper than a copy, and made for each event."""
        return (
            self.revision,
            self.status,
            self.requests,
            self.store_bytes,
            self.workflow,
            self.parent_execution_id,
            self.simulated,
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to what the head was."""
        (
            self.revision,
            self.status,
            self.requests,
            self.store_bytes,
            self.workflow,
            self.parent_execution_id,
            self.simulated,
        ) = snapshot


class Mark(NamedTuple):
    """A place in the changes of an event, to go back to."""

    changes: int
    head: Snapshot
