"""What the clients and engines of a torture run do, by seed: racing commands on few items, runs published in one go."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from schemas.envelope import Event
from schemas.exact_json import JsonObject, JsonValue

HOT_ITEMS = 4
HOT_COUNTERS = 2
HOT_CONVERSATIONS = 2
WORKFLOW = "torture"
_TTL_S = 2


def address_of(key: str, subject: str = "hot") -> JsonObject:
    """Return the fields of a shared item."""
    return {"scope": "shared", "subject": {"kind": "case", "id": subject}, "key": key}


@dataclass
class RacingClient:
    """One client: it reads, writes what it read on condition or without, counts, appends, forgets, talks.

    It has one command under way at a time; `next_command` gives it, `take` brings its outcome.
    """

    name: str
    random: Random
    forgets: bool = True
    count: int = 0
    #: Key -> the version that this client saw last.
    seen: dict[str, int] = field(default_factory=dict)
    key: str = ""

    def next_command(self) -> Event:
        """Return the next command."""
        self.count += 1
        random = self.random
        self.key = f"item-{random.randrange(HOT_ITEMS)}"
        seen = self.seen.get(self.key)
        choice = random.random()
        if choice < 0.15:
            return self._on_counter()
        if choice > 0.85:
            return self._on_conversation()
        if choice < 0.22:
            return self._on_cold_item()
        if choice < 0.28:
            return self._command(
                "memory.update", operation="append", value=self.count, type="Json", max_items=5, on="log"
            )
        if choice < 0.34:
            return self._command(
                "memory.write", value=self.count, type="Integer", ttl=_TTL_S, ttl_unit="seconds", on="brief"
            )
        if choice < 0.38:
            return self._command("memory.read", type="Integer", on="brief")
        if choice < 0.42 and self.forgets:
            fields: JsonObject = {"expected_version": seen} if seen and random.random() < 0.5 else {}
            return self._command("memory.forget", on=self.key, **fields)
        if choice < 0.55 or seen is None:
            return self._command("memory.read", type="Json", on=self.key)
        if choice < 0.76:
            merge: JsonObject = {"on_conflict": "merge"} if random.random() < 0.3 else {}
            return self._command(
                "memory.write", value=self._value(), type="Json", expected_version=seen, on=self.key, **merge
            )
        if choice < 0.93:
            return self._command("memory.write", value=self._value(), type="Json", read_version=seen, on=self.key)
        patch: JsonObject = {self.name: self.count, **({"by": self.name} if random.random() < 0.5 else {})}
        return self._command(
            "memory.update", operation="merge_patch", value=patch, type="Json", read_version=seen, on=self.key
        )

    def take(self, outcome: Event) -> None:
        """Learn from an outcome what version there is."""
        data = outcome.data
        match outcome.type:
            case "memory.found" | "memory.written" | "memory.updated":
                self.seen[self.key] = int(str(data["version"]))
            case "memory.missing" | "memory.forgotten":
                self.seen[self.key] = 0
            case "memory.conflicted":
                self.seen[self.key] = int(str(data["current_version"]))

    def _value(self) -> JsonValue:
        return {"by": self.name, self.name: self.count}

    def _on_counter(self) -> Event:
        key = f"counter-{self.random.randrange(HOT_COUNTERS)}"
        by = self.random.choice([1, 1, 2, 5])
        return self._command("memory.update", operation="increment", by=by, type="Integer", on=key)

    def _on_cold_item(self) -> Event:
        return self._command(
            "memory.write", value=self.count, type="Integer", on=f"cold-{self.random.randrange(10**6)}"
        )

    def _on_conversation(self) -> Event:
        random = self.random
        of: JsonObject = {"workflow": WORKFLOW, "id": f"talk-{random.randrange(HOT_CONVERSATIONS)}"}
        order: JsonObject = {"sort_order": random.choice(["asc", "desc"])}
        if random.random() < 0.5:
            order["limit"] = random.randint(1, 8)
        choice = random.random()
        if choice < 0.58:
            role = random.choice(["user", "assistant", "system"])
            return self._event("conversation.add", **of, role=role, content=f"{self.name} says {self.count}")
        if choice < 0.8:
            return self._event("conversation.get", **of, **order)
        if choice < 0.96:
            return self._event("conversation.get_all", workflow=WORKFLOW, **order)
        return self._event("conversation.delete", **of)

    def _command(self, event_type: str, *, on: str, **data: JsonValue) -> Event:
        self.key = on
        return self._event(event_type, **address_of(on), writer={"user_id": self.name}, **data)

    def _event(self, event_type: str, **data: JsonValue) -> Event:
        return Event(
            id=f"{self.name}-{self.count}",
            source=f"/clients/{self.name}",
            type=event_type,
            replykey=self.name,
            data=dict(data),
        )


@dataclass
class Script:
    """The events of one run, in their order, for one topic."""

    execution_id: str
    random: Random
    events: list[Event] = field(default_factory=list)

    def say(self, event_type: str, **data: JsonValue) -> None:
        """Add an event."""
        number = len(self.events) + 1
        self.events.append(
            Event(
                id=f"{self.execution_id}-{number}",
                source="/engine",
                type=event_type,
                subject=self.execution_id,
                data=dict(data),
            )
        )


def run_script(execution_id: str, random: Random, *, earlier: Sequence[str] = ()) -> list[Event]:
    """Return a whole run: branches, a loop, conditions, scratchpad, hot items and conversations, an end (as a rule).

    It may be the fork or the child of one of the `earlier` runs, and a simulation, which must leave memory alone.
    """
    script = Script(execution_id, random)
    started: JsonObject = {
        "workflow": {"name": WORKFLOW},
        "input": {"amount": random.randrange(100), "note": "as it came: 100.00"},
        "subjects": [{"kind": "case", "id": "hot"}],
        "system": {"user_id": f"user-{random.randrange(3)}"},
    }
    if earlier and random.random() < 0.15:
        started["forked_from"] = {"execution_id": random.choice(earlier), "revision": 1}
    elif earlier and random.random() < 0.2:
        started["parent"] = {"execution_id": random.choice(earlier), "node_id": "child"}
        started["output_mapping"] = {"amount": "{{input.amount}}"}
    if random.random() < 0.2:
        started["simulation"] = _simulation(random)
    script.say("execution.started", **started)
    parts = [_branches, _loop, _memory, _memory, _conversation, _decision, _scratchpad]
    random.shuffle(parts)
    for part in parts[: random.randint(2, len(parts))]:
        part(script, f"n{len(script.events)}")
    ending = random.random()
    if ending < 0.8:
        script.say("execution.completed", output={"amount": "{{input.amount}}", "last": "{{_prev}}"})
    elif ending < 0.87:
        script.say("execution.failed", error="the engine gave up")
    elif ending < 0.92:
        script.say("execution.cancelled")
    return script.events


def _simulation(random: Random) -> JsonValue:
    """Return a simulation that sees what belongs to no subject, or the hot items too, or has seeds instead."""
    choice = random.random()
    if choice < 0.25:
        return True
    simulation: JsonObject = {"subject": {"kind": "case", "id": "hot"}}
    if choice < 0.6:
        seed = address_of(f"item-{random.randrange(HOT_ITEMS)}")
        simulation["memory"] = [{**seed, "type": "Json", "value": {"by": "a seed"}, "version": random.randint(1, 9)}]
    return simulation


def _branches(script: Script, name: str) -> None:
    random = script.random
    branches = [f"{name}-{place}" for place in range(random.randint(2, 3))]
    for branch in branches:
        script.say("activity.scheduled", activity_id=branch, inputs={"amount": "{{input.amount}}", "of": "{{_prev}}"})
    for branch in random.sample(branches, len(branches)):
        if random.random() < 0.15:
            script.say("activity.failed", activity_id=branch, error="no answer")
        elif random.random() < 0.4:
            mapping: JsonObject = {
                f"result.{branch}": f"{{{{{branch}.score}}}}",
                "last_score": f"{{{{{branch}.score}}}}",
            }
            script.say(
                "activity.completed",
                activity_id=branch,
                output={"score": random.randrange(10), "text": "x" * random.randrange(200)},
                output_mapping=mapping,
            )
        else:
            script.say("activity.completed", activity_id=branch, output={"score": random.randrange(10)})
    script.say("parallel.join", node_id=name, branches=list(branches), output_variable=f"joined_{name}")


def _loop(script: Script, name: str) -> None:
    random = script.random
    items = [random.randrange(100) for _ in range(random.randint(1, 4))]
    script.say(
        "foreach.open",
        node_id=name,
        collection=list(items),
        item_variable="item",
        input_mapping={"n": "{{item}}"},
    )
    for index in random.sample(range(len(items)), len(items)):
        script.say(
            "activity.completed",
            activity_id=f"{name}-body",
            output={"doubled": 2 * items[index]},
            iteration=[{"node_id": name, "index": index}],
        )
    script.say("foreach.close", node_id=name)


def _memory(script: Script, name: str) -> None:
    random = script.random
    key = f"item-{random.randrange(HOT_ITEMS)}"
    item = {**address_of(key), "type": "Json"}
    script.say("memory.read", node_id=f"{name}-read", **item)
    value: JsonObject = {"by": script.execution_id, name: "{{input.amount}}"}
    if random.random() < 0.6:
        script.say(
            "memory.write",
            node_id=f"{name}-write",
            value=value,
            expected_version=f"{{{{{name}-read.version}}}}",
            **item,
        )
    else:
        script.say("memory.write", node_id=f"{name}-write", value=value, after=[f"{name}-read"], **item)
    script.say(
        "memory.update",
        node_id=f"{name}-count",
        **address_of(f"counter-{random.randrange(HOT_COUNTERS)}"),
        type="Integer",
        operation="increment",
        by=1,
    )
    if random.random() < 0.3:
        patch: JsonObject = {"by": script.execution_id, "note": {name: "{{input.amount}}"}}
        script.say("memory.update", node_id=f"{name}-patch", operation="merge_patch", value=patch, **item)
    if random.random() < 0.1:
        script.say("memory.forget", node_id=f"{name}-forget", **address_of(key))
    if random.random() < 0.3:
        script.say("variables.set", variables={f"version_{name}": f"{{{{{name}-write.version}}}}"})


def _conversation(script: Script, name: str) -> None:
    random = script.random
    record = f"talk-{random.randrange(HOT_CONVERSATIONS)}"
    content = f"{script.execution_id} says {name} for {{{{input.amount}}}}"
    script.say("conversation.add", node_id=f"{name}-add", id=record, role="assistant", content=content)
    if random.random() < 0.5:
        script.say("conversation.get", node_id=f"{name}-get", id=record, limit=random.randint(1, 6), sort_order="desc")
    if random.random() < 0.1:
        script.say("conversation.delete", node_id=f"{name}-delete", id=record)


def _decision(script: Script, name: str) -> None:
    script.say("condition.evaluate", node_id=name, condition="{{input.amount}} > 50 AND {{input.note}} != null")


def _scratchpad(script: Script, name: str) -> None:
    for number in range(script.random.randint(1, 3)):
        script.say("scratchpad.append", node_id=f"{name}-{number}", key="notes", value={"n": number}, max_items=3)
    script.say("scratchpad.read", node_id=f"{name}-read", key="notes")
