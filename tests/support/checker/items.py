"""One memory item at a time: one chain of versions, each operation at some instant, each value what it must be."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import inf

from schemas.errors import Rejection
from schemas.exact_json import JsonValue, canonical, loads
from schemas.identity import derived_id
from tests.support.checker.commands import Answered
from tests.support.checker.conflicts import check_conflict, check_no_conflict
from tests.support.checker.linearizability import NOTHING, UNKNOWN, Kind, Operation, violation_of
from tests.support.checker.rows import Known, Made, Stored, check_stored, is_conversation, shown_value, stored_rows
from tests.support.checker.simulations import Seen
from tests.support.checker.verdict import Verdict
from tests.support.history import History, ItemRow, event_of
from topics.catalog import Topic
from workers.logic.memory.commands import Forget, Update, Write
from workers.logic.memory.diff import NOTHING as NO_VALUE
from workers.logic.memory.diff import Nothing
from workers.logic.memory.updates import updated

_MADE = {"memory.written", "memory.updated"}


def check_items(history: History, answered: Sequence[Answered], seen: Iterable[Seen] = ()) -> Verdict:
    """Check every item that a command named, also by what simulated runs have `seen` there."""
    verdict = Verdict()
    by_address: defaultdict[str, list[Answered]] = defaultdict(list)
    for each in answered:
        if each.command.address is not None and not is_conversation(each.command.address):
            by_address[each.command.address].append(each)
    looks: defaultdict[str, list[Seen]] = defaultdict(list)
    for each in seen:
        if not is_conversation(each.address):
            looks[each.address].append(each)
    rows = stored_rows(history)
    previous = previous_versions(history)
    for address in by_address.keys() | looks.keys():
        item = _Item(address, by_address[address], looks[address], previous, verdict, until=history.looked_at)
        item.check(rows.get(address, Stored(None, ())))
    verdict.counts["items"] += len(by_address)
    return verdict


def previous_versions(history: History) -> Mapping[str, int]:
    """Return, by the id of `memory.changed`, the live version that a change found."""
    found = {}
    for record in history.log(Topic.MEMORY_CHANGES):
        event = event_of(record)
        if event is not None:
            found[event.id] = int(str(event.data["previous_version"]))
    return found


def seconds(text: JsonValue) -> float:
    """Return a timestamp of ours as seconds."""
    return datetime.fromisoformat(str(text)).timestamp()


class _Item:
    def __init__(
        self,
        address: str,
        answered: Sequence[Answered],
        seen: Sequence[Seen],
        previous: Mapping[str, int],
        verdict: Verdict,
        *,
        until: float,
    ) -> None:
        self._address = address
        self._answered = answered
        self._seen = seen
        self._previous = previous
        self._verdict = verdict
        self._made: dict[int, Made] = {}
        #: Values of versions as canonical JSON; that of a merge is unknown until somebody reads it.
        self._values: dict[int, bytes] = {}
        self._removed = 0
        #: When the rows were read, or later: what had expired by then may be gone.
        self._end = max((until, *(each.returned for each in (*answered, *seen))))

    def check(self, stored: Stored) -> None:
        if not self._collect_chain():
            return
        operations = [operation for each in self._answered if (operation := self._operation(each)) is not None]
        for number, made in self._made.items():
            if made.expires <= self._end:
                operations.append(Operation(f"expiry of {number}", Kind.REMOVE, made.expires, inf, number))
        operations += [look.operation for look in self._seen]
        known = Known(self._address, self._made, self._values, self._removed, self._end)
        row = check_stored(known, stored, self._verdict)
        operations += [] if row is None else [row]
        complaint = violation_of(operations)
        if complaint is not None:
            self._verdict.add("not_linearizable", self._address, complaint)
        self._check_sum(stored.row)

    # -- the chain

    def _collect_chain(self) -> bool:
        """Note who made each version. False if they are no chain: nothing else can be said then."""
        makers: defaultdict[int, list[Answered]] = defaultdict(list)
        for each in self._answered:
            if each.outcome.type in _MADE:
                makers[int(str(each.outcome.data["version"]))].append(each)
        for number, several in makers.items():
            if len(several) > 1:
                names = ", ".join(each.name for each in several)
                self._verdict.add("version_reused", self._address, f"version {number} was made by {names}")
            self._made[number] = Made(several[0], seconds(several[0].outcome.data["expires_at"]))
        missing = sorted(set(range(1, max(makers, default=0) + 1)) - set(makers))
        if missing:
            self._verdict.add("version_gap", self._address, f"nobody made the versions {missing[:10]}")
        self._verdict.counts["versions"] += len(makers)
        whole = not missing and all(len(several) == 1 for several in makers.values())
        if whole:
            for number in sorted(self._made):
                self._note_value(number, self._made[number].by)
        return whole

    def _note_value(self, number: int, by: Answered) -> None:
        if by.outcome.type == "memory.updated":
            self._values[number] = canonical(by.outcome.data["value"])
        elif not by.outcome.data.get("merged"):
            assert isinstance(by.command.request, Write)
            self._values[number] = canonical(by.command.request.value)

    # -- operations

    def _operation(self, each: Answered) -> Operation | None:
        data = each.outcome.data
        match each.outcome.type:
            case "memory.written" | "memory.updated":
                number = int(str(data["version"]))
                return self._at(each, Kind.WRITE, number, self._replaced_by(each, number))
            case "memory.found":
                number = int(str(data["version"]))
                self._check_found(each, number)
                return self._at(each, Kind.OBSERVE, number)
            case "memory.missing":
                return self._at(each, Kind.OBSERVE, NOTHING)
            case "memory.conflicted":
                return self._at(each, Kind.OBSERVE, self._check_conflicted(each))
            case "memory.forgotten" if data["existed"]:
                self._removed += 1
                request = each.command.request
                assert isinstance(request, Forget)
                told = self._previous.get(derived_id(each.command.key, "changed"))
                if request.expected is not None and told not in (None, request.expected):
                    self._wrong(each, f"it expected version {request.expected} and removed {told}")
                removed = request.expected if request.expected is not None else told
                return self._at(each, Kind.REMOVE, UNKNOWN if removed is None else removed)
            case "memory.forgotten":
                return self._at(each, Kind.OBSERVE, NOTHING)
            case _:
                return None

    def _at(self, each: Answered, kind: Kind, version: int, replaced: int = UNKNOWN) -> Operation:
        seen = version if kind is not Kind.WRITE else replaced
        if kind is not Kind.WRITE and each.outcome.type != "memory.conflicted":
            check_no_conflict(self._verdict, each)
        made = self._made.get(seen) if seen > NOTHING else None
        if made is not None and each.invoked >= made.expires:
            self._verdict.add(
                "value_wrong", self._address, f"{each.name} came after version {seen} had expired, and met it"
            )
        return Operation(each.name, kind, each.invoked, each.returned, version, replaced)

    def _replaced_by(self, each: Answered, number: int) -> int:
        """Return the live version that a write found (`NOTHING`, `UNKNOWN`), and check what follows from it."""
        request = each.command.request
        assert isinstance(request, (Write, Update))
        told = self._previous.get(derived_id(each.command.key, "changed"), UNKNOWN)
        if told not in (UNKNOWN, NOTHING, number - 1):
            self._wrong(each, f"it made version {number} in the place of {told}")
        merged = bool(each.outcome.data.get("merged"))
        derived = UNKNOWN
        if merged:
            derived = number - 1
            if request.expected == number - 1:
                self._wrong(each, "it was merged although its version was current")
        elif request.expected is not None:
            derived = request.expected
            if request.expected not in (NOTHING, number - 1):
                self._verdict.add(
                    "condition_ignored",
                    self._address,
                    f"{each.name} expected version {request.expected} and made {number}",
                )
        elif isinstance(request, Update):
            derived = self._update_found(each, request, number)
        if UNKNOWN not in (told, derived) and told != derived:
            self._wrong(each, f"it found version {derived}, memory.changed says {told}")
        replaced = derived if told == UNKNOWN else told
        previous = self._made.get(number - 1)
        return check_conflict(
            self._verdict, each, number, replaced, None if previous is None else previous.by, self._values
        )

    def _update_found(self, each: Answered, request: Update, number: int) -> int:
        """Find out from an update's result whether there was a value; check the result."""
        previous = self._values.get(number - 1)
        result = self._values[number]
        from_nothing = _updated(request, NO_VALUE)
        if number == 1:
            if result != from_nothing:
                self._value_wrong(each, f"the first value is {shown_value(result)}, not {shown_value(from_nothing)}")
            return NOTHING
        if previous is None:
            return UNKNOWN
        from_previous = _updated(request, loads(previous))
        if result == from_previous:
            return UNKNOWN if result == from_nothing else number - 1
        if result == from_nothing:
            return NOTHING
        self._value_wrong(
            each,
            f"version {number} is {shown_value(result)}, from {shown_value(previous)} it is {shown_value(from_previous)}",
        )
        return UNKNOWN

    def _check_found(self, each: Answered, number: int) -> None:
        if number not in self._made:
            self._wrong(each, f"it found version {number}, which nobody made")
        elif "converted_from" not in each.outcome.data:
            found = canonical(each.outcome.data["value"])
            value = self._values.setdefault(number, found)
            if value != found:
                self._value_wrong(each, f"version {number} is {shown_value(value)}, it found {shown_value(found)}")

    def _check_conflicted(self, each: Answered) -> int:
        request = each.command.request
        assert isinstance(request, (Write, Update, Forget))
        data = each.outcome.data
        current = int(str(data["current_version"]))
        if data["expected_version"] != request.expected or current == request.expected:
            self._wrong(each, f"it expected {request.expected}, its outcome says {data['expected_version']}, {current}")
        if current and current not in self._made:
            self._wrong(each, f"it met version {current}, which nobody made")
        check_conflict(self._verdict, each, UNKNOWN, current, None, self._values)
        return current

    # -- what is stored

    def _check_sum(self, row: ItemRow | None) -> None:
        """A counter that was only incremented holds the sum, whatever the order was."""
        requests = [made.by.command.request for made in self._made.values()]
        increments = [request for request in requests if isinstance(request, Update)]
        only = bool(requests) and all(request.operation == "increment" for request in increments)
        if row is None or row.value is None or not only or len(increments) < len(requests) or self._removed:
            return
        if any(made.expires <= self._end for made in self._made.values()):
            return
        total = sum(int(str(request.operand)) for request in increments)
        self._verdict.counts["counters summed"] += 1
        if loads(row.value) != total:
            self._verdict.add(
                "sum_wrong", self._address, f"it holds {shown_value(row.value)}, the increments make {total}"
            )

    def _wrong(self, each: Answered, what: str) -> None:
        self._verdict.add("outcome_wrong", f"{each.name} on {self._address}", what)

    def _value_wrong(self, each: Answered, what: str) -> None:
        self._verdict.add("value_wrong", f"{each.name} on {self._address}", what)


def _updated(request: Update, current: JsonValue | Nothing) -> bytes | None:
    try:
        return canonical(
            updated(request.operation, current, request.operand, type_name=request.type, max_items=request.max_items)
        )
    except Rejection:
        return None
