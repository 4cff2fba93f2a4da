"""The command line `tally` (design 2.6): one module for each group of commands, registered in one place."""

from workers.cli import publish, tail, topics_commands
from workers.cli.app import app

__all__ = ["app", "publish", "tail", "topics_commands"]
