"""Speed of this machine: ours beside the raw limits of the same broker and PostgreSQL, in one run (see README.md)."""
