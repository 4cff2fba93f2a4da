"""What every worker shares: PostgreSQL, the batch rule, failures, health, metrics."""
