"""The real parts in one `pip install`: a Kafka-compatible broker, PostgreSQL and worker processes."""
