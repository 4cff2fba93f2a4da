"""What the checker found: violations that a person can follow up, and counts that show what was looked at."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal[
    "acknowledged_but_lost",
    "condition_ignored",
    "conflict_changed",
    "conflict_missing",
    "conflict_unexplained",
    "conflict_wrong",
    "conversation_wrong",
    "dead_letter_extra",
    "dead_letter_missing",
    "dead_letter_wrong",
    "event_lost",
    "history_wrong",
    "item_wrong",
    "lost_update_unreported",
    "message_lost",
    "message_twice",
    "not_linearizable",
    "outcome_changed",
    "outcome_duplicated",
    "outcome_missing",
    "outcome_of_nothing",
    "outcome_wrong",
    "position_wrong",
    "published_changed",
    "published_missing",
    "published_order",
    "published_stale",
    "published_uncommitted",
    "read_version_wrong",
    "revision_duplicated",
    "revision_gap",
    "revision_order",
    "revision_wrong",
    "simulation_leaked",
    "simulation_wrong",
    "sum_wrong",
    "table_wrong",
    "value_wrong",
    "version_gap",
    "version_reused",
]
_SHOWN_PER_KIND = 5


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise: which, about what (an address, an execution, a command, a partition), and how."""

    kind: Kind
    subject: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.subject}: {self.what}"


@dataclass(slots=True)
class Verdict:
    """Everything that one part of the checker, or all of it, found."""

    violations: list[Violation] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def holds(self) -> bool:
        """Whether every promise was kept."""
        return not self.violations

    @property
    def kinds(self) -> set[str]:
        """The kinds of violations found."""
        return {violation.kind for violation in self.violations}

    def add(self, kind: Kind, subject: str, what: str) -> None:
        """Note a violation."""
        self.violations.append(Violation(kind, subject, what))

    def include(self, part: "Verdict") -> None:
        """Take over what a part found."""
        self.violations += part.violations
        self.counts += part.counts

    def __str__(self) -> str:
        counted = ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))
        if self.holds:
            return f"every promise was kept ({counted})"
        lines = [f"{len(self.violations)} violations ({counted})"]
        by_kind: dict[str, list[Violation]] = {}
        for violation in self.violations:
            by_kind.setdefault(violation.kind, []).append(violation)
        for kind, found in sorted(by_kind.items()):
            lines += [f"  {violation}" for violation in found[:_SHOWN_PER_KIND]]
            if len(found) > _SHOWN_PER_KIND:
                lines.append(f"  ... and {len(found) - _SHOWN_PER_KIND} more of {kind}")
        return "\n".join(lines)
