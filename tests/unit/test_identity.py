"""Who an event is, and when two of one identity differ."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.envelope import Event
from schemas.exact_json import loads
from schemas.identity import content_digest, derived_id, event_key, key_of

texts = st.text(max_size=5)
EVENT = Event(id="1", source="/s", type="t", subject="r", data={"a": 1, "b": 2})


@given(st.tuples(texts, texts, texts), st.tuples(texts, texts, texts))
def test_the_three_parts_are_never_run_together(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assert (event_key(*one) == event_key(*other)) == (one == other)


def test_a_key_depends_on_identity_alone() -> None:
    assert key_of(EVENT) == key_of(replace(EVENT, type="other", data={}))
    assert key_of(EVENT) != key_of(replace(EVENT, tenant="north"))


def test_a_client_that_retries_may_renew_time_and_trace() -> None:
    assert content_digest(replace(EVENT, time="2026", traceparent="00")) == content_digest(EVENT)


def test_the_order_of_fields_is_not_content() -> None:
    assert content_digest(replace(EVENT, data={"b": 2, "a": 1})) == content_digest(EVENT)


def test_everything_that_is_asked_for_is_content() -> None:
    others = [
        replace(EVENT, type="u"),
        replace(EVENT, subject=None),
        replace(EVENT, replykey="k"),
        replace(EVENT, data={"a": 1}),
        replace(EVENT, data={"a": loads(b"1.0"), "b": 2}),
    ]

    assert len({content_digest(event) for event in [EVENT, *others]}) == 6


def test_derived_ids_are_the_same_on_every_delivery_and_differ_by_role() -> None:
    cause = key_of(EVENT)

    assert derived_id(cause, "outcome") == derived_id(cause, "outcome")
    assert derived_id(cause, "outcome") != derived_id(cause, "conflict")
    assert derived_id(cause, "outcome") != derived_id(key_of(replace(EVENT, id="2")), "outcome")
