"""The variable stores: execution topics -> tables, committed in PostgreSQL -> updates, results, commands."""
