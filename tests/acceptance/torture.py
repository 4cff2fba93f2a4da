"""Kill, pause and restart everything while clients race, then check every promise.

python -m tests.acceptance.torture --minutes 10 --seed 7

Prints its seed, what was done to whom, and the verdict; exit code 1 when a promise was broken.
"""

import argparse
import asyncio
import logging
import secrets
import sys
import tempfile
from pathlib import Path

from tests.support import stack
from tests.support.torture.run import Plan, torture


async def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2, help="of each kind")
    parser.add_argument("--brokers", type=int, default=None, help="1, or 3 with Apache Kafka (the default there)")
    parser.add_argument("--pause", type=float, default=2.0, help="mean seconds between faults")
    parser.add_argument("--no-faults", action="store_true", help="only the load and the checker")
    parser.add_argument("--logs", type=Path, help="where the workers' logs and a bad history go")
    chosen = parser.parse_args()
    # Brokers that are away are what this is about; the clients need not say so each time.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    logs = chosen.logs or Path(tempfile.mkdtemp(prefix="tally-torture-"))
    three = stack.apache_kafka_is_installed() and stack.given("TALLY_KAFKA_BOOTSTRAP_SERVERS") is None
    brokers = chosen.brokers or (3 if three else 1)
    seed = secrets.randbelow(2**31) if chosen.seed is None else chosen.seed
    where = "three brokers of Apache Kafka" if brokers == 3 else stack.broker_in_use()
    print(f"torture: seed {seed}, {chosen.minutes:g} minutes, {where}; logs in {logs}", flush=True)
    report = await torture(
        Plan(
            seed=seed,
            seconds=chosen.minutes * 60,
            logs=logs,
            clients=chosen.clients,
            workers=chosen.workers,
            brokers=brokers,
            pause_s=chosen.pause,
            faults=() if chosen.no_faults else None,
        )
    )
    for line in report.lines():
        print(f"torture: {line}", flush=True)
    if not report.passed:
        report.history.save(logs / "history.pickle.gz")
        print(f"torture: the history is in {logs / 'history.pickle.gz'}", flush=True)
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
