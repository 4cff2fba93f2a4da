"""The workers that turn events into stores, memory and conflicts, and the `tally` command."""
