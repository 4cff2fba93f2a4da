"""Options that several commands share."""

from typing import Annotated

import typer

from schemas.envelope import DEFAULT_TENANT

Json = Annotated[bool, typer.Option("--json", help="Write JSON for programs.")]
Tenant = Annotated[str, typer.Option(help="The tenant; nothing crosses it.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="Show so many at most.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")]

__all__ = ["DEFAULT_TENANT", "Follow", "Json", "Limit", "Tenant"]
