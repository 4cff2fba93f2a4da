"""The durable memory: memory-commands -> PostgreSQL -> memory-results, -conflicts, -changes."""
