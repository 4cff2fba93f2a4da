"""Judges the recorded history of a whole run: what went in, what came out, what is stored."""

from tests.support.checker.judge import check
from tests.support.checker.verdict import Verdict, Violation

__all__ = ["Verdict", "Violation", "check"]
