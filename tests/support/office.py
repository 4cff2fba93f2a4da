"""Plays a permit office on real parts: workers as processes, kills while it runs, facts at the end.

python -m tests.support.office FILE.jsonl.gz --workers 3 --kills 10 --times 2
"""

import argparse
import asyncio
import itertools
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.support import stack
from tests.support.cases import broken_facts, facts_of, make_events, read_events, settle, write_events
from topics.admin import TopicAdmin
from workers.embedded.processes import WorkerProcess, WorkerProcesses
from workers.settings import Settings, read_settings

KINDS = ("variables", "memory")
PARTITIONS = 8
#: Each process needs some seconds to come up and join; a kill before that would prove nothing.
KILL_EVERY_S = 2.5


async def play(
    file: Path, kafka: str, dsn: str, prefix: str, logs: Path, *, workers: int = 1, kills: int = 0, times: int = 1
) -> list[str]:
    """Publish `file` so often, with so many workers of each kind and so many kills of each; return broken facts."""
    settings = read_settings(
        kafka_bootstrap_servers=kafka, postgres_dsn=dsn, topic_prefix=prefix, kafka_session_timeout_s=6.0
    )
    async with TopicAdmin(settings.kafka()) as admin:
        await admin.create(partitions=PARTITIONS, replication=1)
    environment = environment_of(settings)
    commands = {f"{kind}-{number}": ("worker", kind) for kind in KINDS for number in range(workers)}
    async with WorkerProcesses(commands, environment, logs) as started:
        killer = asyncio.create_task(_kill(list(started.processes.values()), kills))
        for _ in range(times):
            await _publish(file, environment)
        await killer
        await settle(settings.kafka(), dsn, quiet_s=12 if kills else 5)
    return await broken_facts(facts_of(read_events(file)), settings.kafka(), dsn)


def environment_of(settings: Settings) -> dict[str, str]:
    """Return the settings as the environment of a process."""
    return {
        "TALLY_KAFKA_BOOTSTRAP_SERVERS": settings.kafka_bootstrap_servers,
        "TALLY_POSTGRES_DSN": settings.postgres_dsn.get_secret_value(),
        "TALLY_TOPIC_PREFIX": settings.topic_prefix,
        "TALLY_KAFKA_SESSION_TIMEOUT_S": str(settings.kafka_session_timeout_s),
        "TALLY_LOG_FORMAT": "json",
    }


async def _publish(file: Path, environment: dict[str, str]) -> None:
    publisher = WorkerProcess("publish", ("publish", str(file)), environment, file.with_suffix(".log"))
    await publisher.start()
    code = await publisher.wait()
    assert code == 0, publisher.log.read_text()


async def _kill(processes: list[WorkerProcess], kills: int) -> None:
    """Kill each process so often, one at a time, and start it again at once."""
    rng = random.Random(kills)
    victims = list(itertools.chain.from_iterable([process] * kills for process in processes))
    rng.shuffle(victims)
    for victim in victims:
        await asyncio.sleep(rng.uniform(0.5, 2 * KILL_EVERY_S / max(1, len(processes) / 2)))
        await victim.kill()
        await victim.start()


async def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", help="a log of cases; without it one is made")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--logs", type=Path)
    chosen = parser.parse_args()
    logs = chosen.logs or Path(tempfile.mkdtemp())
    logs.mkdir(parents=True, exist_ok=True)
    file = chosen.file
    if file is None:
        file = logs / "office.jsonl"
        write_events(file, make_events(cases=200, people=12, seed=1))
    async with stack.kafka() as kafka, stack.postgres() as server, stack.migrated_template(server) as template:
        async with stack.database(server, template) as dsn:
            began = time.monotonic()
            broken = await play(
                file,
                kafka,
                dsn,
                stack.unique_prefix(),
                logs,
                workers=chosen.workers,
                kills=chosen.kills,
                times=chosen.times,
            )
            print(f"{stack.broker_in_use()}: {time.monotonic() - began:.1f} s; logs in {logs}")
    for fact in broken:
        print(f"BROKEN {fact}")
    print("every fact holds" if not broken else f"{len(broken)} facts are broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
