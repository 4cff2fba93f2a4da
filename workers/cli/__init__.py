"""The `tally` command."""
