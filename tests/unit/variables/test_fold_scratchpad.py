"""The scratchpad in a run (seed 001)."""

from schemas.envelope import Event
from tests.support.runs import Run, of_type


def say(run: Run, operation: str, **data: object) -> Event:
    (answer,) = run.say(f"scratchpad.{operation}", node_id="pad", **data)
    assert answer.type == "scratchpad.result"
    return answer


def test_a_written_value_is_read_back_and_becomes_the_last_output() -> None:
    run = Run()
    run.start()
    run.output("agent", {"text": "hello"})
    say(run, "write", namespace="workflow", key="result", value="{last_output}")

    answer = say(run, "read", namespace="workflow", key="result")

    assert answer.data["output"] == {"text": "hello"}
    assert run.ready({"l": "{{last_output.text}}", "o": "{{last_output_parsed.operation}}"}) == {
        "l": "hello",
        "o": "read",
    }


def test_append_accumulates_and_a_later_read_shows_the_append_as_its_input() -> None:
    run = Run()
    run.start()
    for number in range(3):
        run.output("agent", {"n": number})
        say(run, "append", namespace="p", key="results", input_key="_prev.n")

    answer = say(run, "read", namespace="p", key="results")

    assert answer.data["output"] == [0, 1, 2]
    assert answer.data["input"]["operation"] == "append"
    assert run.ready({"m": "{{memory.p.results.1}}", "k": "{{memory_manager.operation}}"}) == {"m": 1, "k": "read"}


def test_summarize_is_numbered_stored_and_passed_on_as_text() -> None:
    run = Run()
    run.start()
    for text in ("first response", "second response"):
        say(run, "append", namespace="c", key="messages", value=text)

    answer = say(run, "summarize", namespace="c", key="messages")

    assert answer.data["output"] == "1. first response\n2. second response"
    assert say(run, "read", namespace="c", key="messages_summary").data["output"] == answer.data["output"]


def test_clear_empties_a_namespace_and_the_size_with_it() -> None:
    run = Run()
    run.start()
    before = run.state.store_bytes
    say(run, "write", key="a", value="x" * 500)
    say(run, "clear")

    assert say(run, "read").data["output"] == {}
    assert run.state.store_bytes < before + 500


def test_names_are_case_sensitive() -> None:
    run = Run()
    run.start()
    say(run, "write", namespace="Conversations", key="k", value="x")

    assert say(run, "read", namespace="conversations", key="k").data["output"] is None


def test_a_request_behind_a_waiting_one_in_its_namespace_waits_too() -> None:
    run = Run()
    run.start()
    run.say("activity.scheduled", activity_id="agent", inputs={})
    assert run.say("scratchpad.append", node_id="add", key="k", value="{outputs.agent.parsed.text}") == []
    assert run.say("scratchpad.read", node_id="get", key="k") == []

    events = run.output("agent", {"text": "t"})

    added, got = of_type(events, "scratchpad.result")
    assert (added.data["node_id"], got.data["output"]) == ("add", ["t"])


def test_a_new_run_starts_empty() -> None:
    one, two = Run("one"), Run("two")
    one.start()
    two.start()
    say(one, "write", key="k", value="x")

    assert say(two, "read", key="k").data["output"] is None
