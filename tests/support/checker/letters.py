"""Dead letters hold exactly what was bad, as it was, and why."""

import base64
from collections import defaultdict

from tests.support.checker.verdict import Verdict
from tests.support.history import History, Place, event_of, place_of
from topics.catalog import Topic
from topics.records import ReceivedRecord


def check_letters(history: History) -> Verdict:
    """Compare the letters with the records that were planted as bad."""
    verdict = Verdict()
    planted: dict[Place, tuple[ReceivedRecord, str]] = {}
    for topic, records in history.logs.items():
        for record in records:
            code = history.bad.get((topic, record.value or b""))
            if code is not None:
                planted[place_of(record)] = record, code
    letters: defaultdict[Place, list[ReceivedRecord]] = defaultdict(list)
    for letter in history.log(Topic.DEAD_LETTERS):
        event = event_of(letter)
        assert event is not None, "letters are events"
        data = event.data
        letters[Topic(str(data["topic"])), int(str(data["partition"])), int(str(data["offset"]))].append(letter)
    for place, (record, code) in planted.items():
        if place not in letters:
            verdict.add("dead_letter_missing", _name(place), f"the record is bad ({code}) and has no letter")
        else:
            _check_letter(verdict, place, record, code, letters[place])
    for place in letters.keys() - planted.keys():
        event = event_of(letters[place][0])
        assert event is not None, "letters are events"
        data = event.data
        original = base64.b64decode(str(data["value_base64"] or ""))[:300]
        verdict.add("dead_letter_extra", _name(place), f"{data['code']}: {data['message']}: {original!r}")
    verdict.counts["bad records"] += len(planted)
    return verdict


def _name(place: Place) -> str:
    topic, partition, offset = place
    return f"{topic.value}/{partition}/{offset}"


def _check_letter(
    verdict: Verdict, place: Place, record: ReceivedRecord, code: str, letters: list[ReceivedRecord]
) -> None:
    if len({letter.value for letter in letters}) > 1:
        verdict.add("dead_letter_wrong", _name(place), f"{len(letters)} letters that differ")
    event = event_of(letters[0])
    assert event is not None, "letters are events"
    if event.data["code"] != code:
        verdict.add("dead_letter_wrong", _name(place), f"the code is {event.data['code']}, not {code}")
    headers = [[name, _base64(value)] for name, value in record.headers]
    due = _base64(record.value), _base64(record.key), headers, record.key
    if (*(event.data[part] for part in ("value_base64", "key_base64", "headers")), letters[0].key) != due:
        verdict.add("dead_letter_wrong", _name(place), "the letter does not hold the original")


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()
