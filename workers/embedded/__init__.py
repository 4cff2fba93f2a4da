"""Kafka and PostgreSQL from Python wheels, for a machine that has neither."""
