"""The live stores as a Faust table: executions -> entries, in memory, backed by a compacted changelog.

The table is a working copy. PostgreSQL holds the truth: what is read here is used only when its revision is the
committed one and when, after a recovery, its entries add up to the checksum that its head carries. Whatever went
wrong with the changelog (a lost record, a zombie's late write, a topic that was made anew) then costs a rebuild, never
a wrong answer.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from sys import intern
from typing import Any, cast
from zlib import adler32, crc32

import faust
from faust.stores.memory import Store
from faust.types import TP, EventT
from yarl import URL

from topics.catalog import Topic
from topics.records import Record
from workers.logic.variables.state import ExecutionKey, ExecutionState
from workers.runtime.crash_points import pass_point
from workers.variables.driver import Fetch

#: Revision, checksum of the entries, whether the execution has ended; the fold's own head follows.
_HEAD = struct.Struct(">QQ?")
_HEAD_ENTRY = ""
_CHECKSUM_MASK = 2**64 - 1
#: Neither part can hold it: the codec refuses NUL in attributes, and entries are built of names without it.
_SEPARATOR = "\0"
_NEVER = -1


def _entry_checksum(entry: str, value: bytes | None) -> int:
    """Return 64 bits of an entry. A lost record is what they must tell, not a forged one: a hash costs more."""
    return 0 if value is None else _weight(entry) * (crc32(value) << 32 | adler32(value))


@lru_cache(maxsize=65536)
def _weight(entry: str) -> int:
    """Return an odd number of the name's own, so that values which changed places add up to something else."""
    return int.from_bytes(blake2b(entry.encode(), digest_size=8).digest()) | 1


def _total(entries: Mapping[str, bytes]) -> int:
    return sum(_entry_checksum(entry, value) for entry, value in entries.items()) & _CHECKSUM_MASK


@dataclass(slots=True)
class LiveExecution:
    """One execution's store as this worker holds it. `checksum` is the sum over all entries, modulo 2^64."""

    revision: int = _NEVER
    head: bytes = b""
    ended: bool = False
    checksum: int = 0
    entries: dict[str, bytes] = field(default_factory=dict)
    #: False after a recovery, until the entries were added up once.
    proved: bool = False
    #: Monotonic seconds of the last use.
    used_at: float = 0.0
    #: The fold's working copy over `entries`, kept between batches; absent while a batch may still be rolled back.
    state: ExecutionState | None = None

    @classmethod
    def rebuilt(cls, revision: int, head: bytes, entries: dict[str, bytes]) -> "LiveExecution":
        """Return an execution as PostgreSQL has it."""
        return cls(revision, head, False, _total(entries), entries, proved=True)

    def is_whole(self) -> bool:
        """Say whether the entries are those that the head was written with."""
        if not self.proved:
            self.proved = _total(self.entries) == self.checksum
        return self.proved

    def packed_head(self) -> bytes:
        """Return the head as the changelog holds it."""
        return _HEAD.pack(self.revision, self.checksum, self.ended) + self.head


class ExecutionStore(Store[bytes, bytes]):
    """The table's storage: partition -> execution -> entries."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.partitions: dict[int, dict[ExecutionKey, LiveExecution]] = {}
        #: The offset of the last changelog record that each partition here includes.
        self.offsets: dict[int, int] = {}

    def apply_changelog_batch(self, batch: Iterable[EventT[Any]], to_key: object, to_value: object) -> None:  # noqa: ARG002
        """Take in recovered changelog records; the newest of a key wins."""
        for event in batch:
            executions = self.partitions.setdefault(event.message.partition, {})
            for key, value in changelog_records(event):
                recover(executions, key, value)
            self.offsets[event.message.partition] = event.message.offset
        pass_point("in_recovery")

    async def on_rebalance(
        self,
        assigned: set[TP],
        revoked: set[TP],  # noqa: ARG002
        newly_assigned: set[TP],  # noqa: ARG002
        generation_id: int = 0,  # noqa: ARG002
    ) -> None:
        """Drop the partitions that are no longer ours: another worker changes them now."""
        topic = self.table.changelog_topic.get_topic_name()
        mine = {tp.partition for tp in assigned if tp.topic == topic}
        for partition in (self.partitions.keys() | self.offsets.keys()) - mine:
            self.partitions.pop(partition, None)
            self.offsets.pop(partition, None)
        pass_point("in_rebalance")

    async def on_recovery_completed(self, active_tps: set[TP], standby_tps: set[TP]) -> None:
        """Nothing to do: partitions that are not ours were dropped already."""

    def persisted_offset(self, tp: TP) -> int | None:
        """Return from where a recovery goes on: a partition that stays here over a rebalance is not read again."""
        return self.offsets.get(tp.partition)


def changelog_records(event: EventT[Any]) -> Iterator[tuple[bytes, bytes | None]]:
    """Return the changelog records that one Faust event carries (our consumer packs a fetch into one)."""
    for record in cast("Fetch", event.message).records:
        if record.key is not None:
            yield record.key, record.value


def recover(executions: dict[ExecutionKey, LiveExecution], key: bytes, value: bytes | None) -> None:
    """Take in one changelog record."""
    # Executions of one workflow have entries of one name: a copy for each would take as much memory as small values.
    tenant, execution_id, entry = key.decode().split(_SEPARATOR)
    execution_key = ExecutionKey(intern(tenant), execution_id)
    live = executions.get(execution_key)
    if live is None:
        if value is None:
            return
        live = executions[execution_key] = LiveExecution()
    live.proved = False
    live.state = None
    if entry == _HEAD_ENTRY:
        if value is None:
            live.revision = _NEVER
        else:
            live.revision, live.checksum, live.ended = _HEAD.unpack_from(value)
            live.head = value[_HEAD.size :]
    elif value is None:
        live.entries.pop(entry, None)
    else:
        live.entries[intern(entry)] = value
    if live.revision == _NEVER and not live.entries:
        del executions[execution_key]


class ExecutionTable(faust.Table[bytes, bytes]):
    """The table of live executions. Changes give changelog records, which the batch publishes and awaits."""

    def _new_store_by_url(self, url: str | URL) -> ExecutionStore:
        return ExecutionStore(
            url,
            self.app,
            self,
            table_name=self.name,
            key_type=self.key_type,
            value_type=self.value_type,
            key_serializer=self.key_serializer,
            value_serializer=self.value_serializer,
            loop=self.loop,
        )

    @property
    def partitions_held(self) -> dict[int, dict[ExecutionKey, LiveExecution]]:
        """The storage itself."""
        store: Any = self.data
        partitions: dict[int, dict[ExecutionKey, LiveExecution]] = store.partitions
        return partitions

    def __len__(self) -> int:
        return sum(len(executions) for executions in self.partitions_held.values())

    def note_published(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Take note of where the changelog ends that `change`, `adopt` and `evict` gave, by topic and partition."""
        store: Any = self.data
        for (_, partition), offset in offsets.items():
            if partition in self.partitions_held:
                store.offsets[partition] = offset

    def live(self, partition: int, key: ExecutionKey) -> LiveExecution | None:
        """Return what the table holds of an execution, proved or not."""
        return self.partitions_held.get(partition, {}).get(key)

    def continues(self, partition: int, key: ExecutionKey, revision: int) -> bool:
        """Say whether this worker itself made and published the execution's newest revision."""
        live = self.live(partition, key)
        return live is not None and live.state is not None and live.revision == revision

    def change(
        self,
        partition: int,
        key: ExecutionKey,
        live: LiveExecution,
        changes: Mapping[str, bytes | None],
    ) -> list[Record]:
        """Apply `changes` to `live`, whose revision and head are set already, and return their changelog records."""
        checksum = live.checksum
        for entry, value in changes.items():
            checksum += _entry_checksum(entry, value) - _entry_checksum(entry, live.entries.get(entry))
            if value is None:
                live.entries.pop(entry, None)
            else:
                live.entries[entry] = value
        live.checksum = checksum & _CHECKSUM_MASK
        self.partitions_held.setdefault(partition, {})[key] = live
        # The head last: without it, what was written before does not count.
        return written_entries(partition, key, [*changes.items(), (_HEAD_ENTRY, live.packed_head())])

    def adopt(
        self,
        partition: int,
        key: ExecutionKey,
        rebuilt: LiveExecution,
        changes: Mapping[str, bytes | None],
    ) -> list[Record]:
        """Put a rebuilt execution in the place of what the table held and `change` it; return all its records."""
        before = self.live(partition, key)
        stale = [entry for entry in (before.entries if before is not None else ()) if entry not in rebuilt.entries]
        unchanged = [(entry, value) for entry, value in rebuilt.entries.items() if entry not in changes]
        return [
            *written_entries(partition, key, [(entry, None) for entry in stale if entry not in changes]),
            *written_entries(partition, key, unchanged),
            *self.change(partition, key, rebuilt, changes),
        ]

    def leaving(self, before: float) -> dict[ExecutionKey, int]:
        """Return the revisions of those that `evict` would drop and whose newest revision this worker published."""
        return {
            key: live.revision
            for executions in self.partitions_held.values()
            for key, live in executions.items()
            if live.ended and live.used_at < before and live.state is not None
        }

    def evict(self, before: float) -> list[Record]:
        """Drop the ended executions last used before `before` (monotonic seconds); return their tombstones."""
        tombstones: list[Record] = []
        for partition, executions in self.partitions_held.items():
            for key in [key for key, live in executions.items() if live.ended and live.used_at < before]:
                live = executions.pop(key)
                tombstones += written_entries(partition, key, [(entry, None) for entry in (*live.entries, _HEAD_ENTRY)])
        return tombstones


def written_entries(partition: int, key: ExecutionKey, changed: Iterable[tuple[str, bytes | None]]) -> list[Record]:
    """Return the changelog records that set entries of an execution, or delete them (None)."""
    prefix = f"{key.tenant}{_SEPARATOR}{key.execution_id}{_SEPARATOR}".encode()
    return [Record(Topic.EXECUTIONS_TABLE, prefix + entry.encode(), value, (), partition) for entry, value in changed]
