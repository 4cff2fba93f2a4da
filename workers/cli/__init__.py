"""The command line `tally`: one module for each group of commands, registered in one place."""

from workers.cli import (
    bench,
    dead_letters,
    demo_command,
    doctor,
    executions,
    memory,
    outcomes,
    publish,
    tail,
    topics_commands,
    up,
    worker,
)
from workers.cli.app import app

__all__ = [
    "app",
    "bench",
    "dead_letters",
    "demo_command",
    "doctor",
    "executions",
    "memory",
    "outcomes",
    "publish",
    "tail",
    "topics_commands",
    "up",
    "worker",
]
