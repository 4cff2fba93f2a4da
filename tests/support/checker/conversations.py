"""Conversations: every accepted message kept exactly once, in one order that everybody sees.

A message is added once, so a list of messages names its last addition, and what that addition answered is the list
after it. Additions follow one another in lives, from nothing or a deletion to the next deletion. `memory.changed`
numbers their versions; where its worker died before it said so, every place that is left is tried.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.envelope import Event
from schemas.exact_json import JsonValue, canonical
from schemas.identity import derived_id
from tests.support.checker.commands import Answered
from tests.support.checker.conflicts import check_no_conflict
from tests.support.checker.linearizability import NOTHING, UNKNOWN, Kind, Operation, violation_of
from tests.support.checker.rows import Known, Made, Stored, check_stored, is_conversation, stored_rows
from tests.support.checker.simulations import Seen
from tests.support.checker.verdict import Kind as Broken
from tests.support.checker.verdict import Verdict
from tests.support.history import History, event_of
from topics.catalog import Topic
from workers.logic.memory.commands import AddMessage, GetMessages, ListRecords
from workers.logic.memory.conversations import record_id_of

#: Ways to place lives whose versions nobody told, that are tried at most.
_MAX_PLACINGS = 200
#: Messages as canonical JSON, oldest first.
Messages = tuple[bytes, ...]


class Addition(NamedTuple):
    """An accepted message, and the conversation after it."""

    by: Answered
    messages: Messages


class Listed(NamedTuple):
    """What a list of all conversations shows of one: its messages, nothing."""

    by: Answered
    messages: Messages


@dataclass(slots=True)
class Life:
    """Additions that follow one another from an empty conversation on; `before` versions were made before, if known."""

    additions: list[Addition] = field(default_factory=list)
    before: int = UNKNOWN


def check_conversations(history: History, answered: Sequence[Answered], seen: Iterable[Seen] = ()) -> Verdict:
    """Check every conversation that was named."""
    verdict = Verdict()
    by_address: defaultdict[str, list[Answered]] = defaultdict(list)
    lists: list[Answered] = []
    for each in answered:
        if isinstance(each.command.request, ListRecords):
            lists.append(each)
        elif each.command.address is not None and is_conversation(each.command.address):
            by_address[each.command.address].append(each)
    looks: defaultdict[str, list[Seen]] = defaultdict(list)
    for look in seen:
        if is_conversation(look.address):
            looks[look.address].append(look)
    changes = {event.id: event for record in history.log(Topic.MEMORY_CHANGES) if (event := event_of(record))}
    rows = stored_rows(history)
    told = {version.command_key: version.version for version in history.versions}
    for address in by_address.keys() | looks.keys():
        conversation = _Conversation(address, by_address[address], looks[address], verdict)
        conversation.number(changes, told)
        conversation.check(lists, changes, rows.get(address, Stored(None, ())))
    for each in lists:
        _check_list(each, verdict)
    verdict.counts["conversations"] += len(by_address)
    return verdict


def _messages(value: JsonValue) -> Messages:
    assert isinstance(value, list), "written by the memory worker"
    return tuple(map(canonical, value))


def _check_list(each: Answered, verdict: Verdict) -> None:
    """Check what a list says of itself: its order, its counts."""
    check_no_conflict(verdict, each)
    request, data = each.command.request, each.outcome.data
    assert isinstance(request, ListRecords)
    records = data["memories"]
    assert isinstance(records, list)
    order = [(str(record["updated_at"]), str(record["key"])) for record in records if isinstance(record, dict)]
    total = int(str(data["total"]))
    due = total if request.limit is None else min(total, request.limit)
    counted = len(records) == data["count"] == due or request.role is not None or bool(data.get("truncated"))
    if order != sorted(order, reverse=request.sort_order == "desc") or not counted:
        verdict.add("conversation_wrong", each.name, f"it lists {order}, count {data['count']} of {total}")


class _Conversation:
    def __init__(self, address: str, answered: Sequence[Answered], looks: Sequence[Seen], verdict: Verdict) -> None:
        self._address = address
        self._answered = answered
        self._looks = looks
        self._verdict = verdict
        self._end = max(each.returned for each in (*answered, *looks))
        self._lives: list[Life] = []
        #: By its messages, where a state lies: in which life, after how many additions.
        self._states: dict[Messages, tuple[Life, int]] = {}
        #: By a message, the life in which it was added.
        self._life_of: dict[bytes, Life] = {}
        self._whole = self._collect()

    # -- lives

    def _collect(self) -> bool:
        """Put the additions in order. False if they have none: nothing else can be said then."""
        additions = [
            Addition(each, _messages(each.outcome.data["memories"]))
            for each in self._answered
            if each.outcome.type == "conversation.added"
        ]
        self._verdict.counts["messages"] += len(additions)
        followers: defaultdict[Messages, list[Addition]] = defaultdict(list)
        known = {_own(addition) for addition in additions}
        whole = True
        for addition in additions:
            whole = self._is_sound(addition, known) and whole
            followers[addition.messages[:-1]].append(addition)
        for first in followers.pop((), []):
            life = Life([first])
            while (after := followers.pop(life.additions[-1].messages, None)) is not None:
                life.additions.append(after[0])
                if len(after) > 1:
                    names = " and ".join(each.by.name for each in after)
                    self._wrong("message_lost", names, "each is the only one that follows the same messages")
                    whole = False
            self._note(life)
        for before, lost in followers.items():
            what = f"it follows {len(before)} messages that nobody's list ends with"
            self._wrong("conversation_wrong", lost[0].by.name, what)
        return whole and not followers

    def _is_sound(self, addition: Addition, known: set[bytes]) -> bool:
        """Check that a list ends with what was added, and holds nothing else than what was added, once."""
        messages, data = addition.messages, addition.by.outcome.data
        check_no_conflict(self._verdict, addition.by)
        repeated = len(set(messages)) < len(messages)
        if repeated:
            self._wrong("message_twice", addition.by.name, "its list holds a message twice")
        is_right = messages[-1:] == (_own(addition),) and known.issuperset(messages) and data["count"] == len(messages)
        if not is_right:
            self._wrong("conversation_wrong", addition.by.name, f"its list is {_shown(messages)}")
        return is_right and not repeated

    def _note(self, life: Life) -> None:
        self._lives.append(life)
        for count, addition in enumerate(life.additions, start=1):
            self._states[addition.messages] = life, count
            self._life_of[_own(addition)] = life

    # -- versions

    def number(self, changes: Mapping[str, Event], told: Mapping[object, int]) -> None:
        """Find out with which version each life begins, from `memory.changed` and the stored history."""
        for life in self._lives:
            begins = set()
            for count, (by, messages) in enumerate(life.additions, start=1):
                change = changes.get(derived_id(by.command.key, "changed"))
                version = told.get(by.command.key) if change is None else int(str(change.data["version"]))
                if version is not None:
                    begins.add(version - count)
                if change is not None:
                    self._check_change(by, change, messages, count)
            if len(begins) > 1:
                self._wrong("version_gap", self._address, f"the versions of one life begin after {sorted(begins)}")
                self._whole = False
            life.before = max(begins, default=UNKNOWN)

    def _check_change(self, by: Answered, change: Event, messages: Messages, count: int) -> None:
        value = change.data["value"]
        if not isinstance(value, dict) or _messages(value["messages"]) != messages:
            self._wrong("published_changed", by.name, "memory.changed shows other messages than its outcome")
        previous = int(str(change.data["previous_version"]))
        if previous != (NOTHING if count == 1 else int(str(change.data["version"])) - 1):
            self._wrong("outcome_wrong", by.name, f"message {count} found version {previous}")

    def _placings(self) -> Iterator[list[tuple[int, Life]]]:
        """Give the ways in which the lives can follow one another: with the version before each."""
        placed = {life.before: life for life in self._lives if life.before != UNKNOWN}
        unplaced = [life for life in self._lives if life.before == UNKNOWN]
        self._verdict.counts["lives placed by trial"] += len(unplaced)
        total = sum(len(life.additions) for life in self._lives)

        def follow(done: list[tuple[int, Life]], version: int, rest: list[Life]) -> Iterator[list[tuple[int, Life]]]:
            if version == total:
                yield done
                return
            here = [placed[version]] if version in placed else rest
            for life in here:
                after = version + len(life.additions)
                if not any(version < start < after for start in placed):
                    yield from follow([*done, (version, life)], after, [each for each in rest if each is not life])

        yield from follow([], 0, unplaced)

    # -- operations

    def check(self, lists: Sequence[Answered], changes: Mapping[str, Event], stored: Stored) -> None:
        if not self._whole:
            return
        listed = [found for each in lists if (found := self._listed(each)) is not None]
        readers = [reader for each in self._answered if (reader := self._read(each)) is not None]
        complaint = None
        for tried, placing in enumerate(self._placings()):
            verdict = Verdict()
            complaint = self._complaint(placing, [*readers, *listed], changes, stored, verdict)
            if complaint is None or tried == _MAX_PLACINGS:
                break
        else:
            if complaint is None:
                self._wrong("version_gap", self._address, "the versions of its lives are no chain")
                return
        self._verdict.include(verdict)
        if complaint is not None:
            self._wrong("not_linearizable", self._address, complaint)

    def _complaint(
        self,
        placing: Sequence[tuple[int, Life]],
        readers: Sequence[Listed],
        changes: Mapping[str, Event],
        stored: Stored,
        verdict: Verdict,
    ) -> str | None:
        """Return what does not fit into one order, where the lives follow each other like this."""
        version_of: dict[Messages, int] = {(): NOTHING}
        made: dict[int, Made] = {}
        operations: list[Operation] = []
        for before, life in placing:
            for count, (by, messages) in enumerate(life.additions, start=1):
                version_of[messages] = before + count
                made[before + count] = Made(by)
                replaced = NOTHING if count == 1 else before + count - 1
                operations.append(_operation(by, Kind.WRITE, before + count, replaced))
        operations += [_operation(by, Kind.OBSERVE, version_of[messages]) for by, messages in readers]
        operations += [look.operation for look in self._looks]
        removed = 0
        for each in self._answered:
            if each.outcome.type == "conversation.deleted" and each.outcome.data["success"]:
                removed += 1
                change = changes.get(derived_id(each.command.key, "changed"))
                told = UNKNOWN if change is None else int(str(change.data["previous_version"]))
                operations.append(_operation(each, Kind.REMOVE, told))
        values = {number: _as_json(messages) for messages, number in version_of.items()}
        known = Known(self._address, made, values, removed, self._end, part=_part)
        row = check_stored(known, stored, verdict)
        return violation_of(operations if row is None else [*operations, row])

    def _read(self, each: Answered) -> Listed | None:
        """Return what somebody read, as the state that it was."""
        match each.outcome.type:
            case "conversation.got":
                return self._got(each)
            case "conversation.deleted":
                check_no_conflict(self._verdict, each)
                return None if each.outcome.data["success"] else Listed(each, ())
            case "conversation.added":
                return None
            case other:
                self._wrong("outcome_wrong", each.name, f"its outcome is {other}: {each.outcome.data}")
                return None

    def _got(self, each: Answered) -> Listed | None:
        check_no_conflict(self._verdict, each)
        request, data = each.command.request, each.outcome.data
        assert isinstance(request, GetMessages)
        shown, total = _messages(data["memories"]), int(str(data["total_count"]))
        life = self._life_of.get(shown[0]) if shown else None
        state: Messages = ()
        if life is not None and 0 < total <= len(life.additions):
            state = life.additions[total - 1].messages
        ordered = state[::-1] if request.sort_order == "desc" else state
        due = ordered if request.limit is None else ordered[: request.limit]
        said = data["count"], total, data["limit"], data["sort_order"]
        if shown != due or said != (len(due), len(state), request.limit, request.sort_order):
            self._wrong("conversation_wrong", each.name, f"it got {_shown(shown)}, {said}, which nobody made")
            return None
        return Listed(each, state)

    def _listed(self, each: Answered) -> Listed | None:
        """Return what a list shows of this conversation, None if it need not show it."""
        request, data = each.command.request, each.outcome.data
        assert isinstance(request, ListRecords)
        if not self._address.startswith(request.prefix) or request.role is not None:
            return None
        records = data["memories"]
        assert isinstance(records, list)
        for record in records:
            if isinstance(record, dict) and record["key"] == record_id_of(self._address):
                messages = _messages(record["data"])
                if messages not in self._states:
                    self._wrong("conversation_wrong", each.name, f"it lists {_shown(messages)}, which nobody made")
                    return None
                return Listed(each, messages)
        return None if request.limit is not None or data.get("truncated") else Listed(each, ())

    def _wrong(self, kind: Broken, name: str, what: str) -> None:
        self._verdict.add(kind, self._address if name == self._address else f"{name} on {self._address}", what)


def _own(addition: Addition) -> bytes:
    request = addition.by.command.request
    assert isinstance(request, AddMessage)
    return canonical(request.message)


def _operation(by: Answered, kind: Kind, version: int, replaced: int = UNKNOWN) -> Operation:
    return Operation(by.name, kind, by.invoked, by.returned, version, replaced)


def _as_json(messages: Messages) -> bytes:
    return b"[" + b",".join(messages) + b"]"


def _part(value: JsonValue) -> JsonValue:
    assert isinstance(value, dict), "written by the memory worker"
    return value["messages"]


def _shown(messages: Messages) -> str:
    return f"{len(messages)} messages up to {messages[-1].decode()[:80] if messages else 'none'}"
