"""Every metric's name, in one place (Prometheus conventions: base units, `_total` for counters)."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZE_BUCKETS = (1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000)


class Metrics:
    """The figures of one process. `worker` is the label that tells workers of one process apart."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        #: `outcome`: applied, replayed, handed_over, unrecorded, rejected, forwarded, behind.
        self.events = Counter("tally_events", "Events by what became of them", ("worker", "outcome"), registry=registry)
        self.published = Counter("tally_published", "Records published", ("worker", "topic"), registry=registry)
        self.batches = Counter("tally_batches", "Batches committed", ("worker",), registry=registry)
        self.batch_seconds = Histogram(
            "tally_batch_seconds",
            "From a batch's first step to its last acknowledgement",
            ("worker",),
            buckets=_LATENCY_BUCKETS,
            registry=registry,
        )
        self.step_seconds = Histogram(
            "tally_step_seconds",
            "A batch's steps: commit (read, decide, write), publish, changelog",
            ("worker", "step"),
            buckets=_LATENCY_BUCKETS,
            registry=registry,
        )
        self.batch_events = Histogram(
            "tally_batch_events", "Events in a batch", ("worker",), buckets=_SIZE_BUCKETS, registry=registry
        )
        self.dead_letters = Counter(
            "tally_dead_letters", "Records not accepted, by code", ("worker", "code"), registry=registry
        )
        self.retries = Counter(
            "tally_retries", "Attempts that failed and were repeated", ("worker", "cause"), registry=registry
        )
        self.conflicts = Counter("tally_conflicts", "Races between runs, by kind", ("kind",), registry=registry)
        self.expired = Counter("tally_items_expired", "Items purged after their time", registry=registry)
        self.rebuilt = Counter(
            "tally_executions_rebuilt", "Stores rebuilt from PostgreSQL because the table was behind", registry=registry
        )
        self.evicted = Counter("tally_executions_evicted", "Ended stores that left the table", registry=registry)
        self.live_executions = Gauge("tally_live_executions", "Stores held in memory", registry=registry)
        self.ready = Gauge("tally_ready", "1 when every check of the worker is green", ("worker",), registry=registry)
