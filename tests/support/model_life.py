"""The part of the model that says how a run begins and ends, and what it gives its parent."""

from copy import deepcopy
from typing import Any, Self

from schemas.envelope import Event
from tests.support.model_order import ENDINGS, Frame, Waiting, render

_ENDED = ("completed", "failed", "cancelled")


class Life(Waiting):
    """From `execution.started` to `execution.finalized`."""

    def apply(self, event: Event) -> list[tuple[Any, ...]]:
        """Apply one event; return what it sends, in order."""
        self.sent, was = [], self.status
        body = deepcopy(event.data)
        frame = tuple((step["node_id"], step["index"]) for step in body.get("iteration") or ())
        kind, _, verb = event.type.partition(".")
        if "command_id" in body:
            self.outcome(event.type, body)
        else:
            name = kind if kind in ("scratchpad", "memory") else f"{kind}_{verb}"
            getattr(self, name)(body, frame, event)
        self.settle()
        if self.completion is not None and self.started and not self.open and self.status == "running":
            self.complete_run(self.completion["output"])
        self.revision += 1
        if self.status in _ENDED:
            late = was == self.status
            self.sent.append(
                ("execution.finalized", {**self.final, "late": late, "variables": deepcopy(self.scopes[()])})
            )
            if self.parent is not None and (not late or event.type == "execution.started"):
                self.tell(self.parent)
        return self.sent

    def outcome(self, kind: str, body: dict[str, Any]) -> None:
        raise NotImplementedError

    def tell(self, parent: dict[str, Any]) -> None:
        """Give the parent's node what the run gave."""
        frame = tuple((step["node_id"], step["index"]) for step in parent.get("iteration") or ())
        gave = self.passed_on if isinstance(self.passed_on, dict) else {}
        said = (self.status, deepcopy(gave), self.final.get("error"))
        self.sent.append(("child.completed", parent["execution_id"], parent["node_id"], frame, said))

    def forked(self, execution_id: str) -> Self:
        """Return a run that begins as this one is, without what is open."""
        fork = type(self)(execution_id)
        for name in ("scopes", "pads", "ended", "loops", "seen", "pointers", "revision"):
            setattr(fork, name, deepcopy(getattr(self, name)))
        return fork

    def execution_started(self, body: dict[str, Any], frame: Frame, event: Event) -> None:
        self.started = True
        self.subjects = {subject["kind"]: subject["id"] for subject in body["subjects"]}
        self.parent, self.output_mapping = body.get("parent"), body.get("output_mapping")
        self.status = "running" if self.status == "open" else self.status
        self.scopes[()]["input"] = body["input"]
        self.scopes[()]["system"] = {"execution_id": self.execution_id}
        self.release("start", None)

    def execution_completed(self, body: dict[str, Any], frame: Frame, event: Event) -> None:
        if self.status in ("open", "running") and self.completion is None:
            self.completion = {"output": body.get("output")}

    def complete_run(self, output: Any) -> None:
        said = render(output, lambda path: self.look((), path))
        mapping = self.output_mapping
        self.passed_on = said if mapping is None else render(mapping, lambda path: self.look((), path))
        self.end("completed", {"output": said})

    def execution_failed(self, body: dict[str, Any], frame: Frame, event: Event) -> None:
        self.end("failed", {"output": None, "error": body["error"]})

    def execution_cancelled(self, body: dict[str, Any], frame: Frame, event: Event) -> None:
        self.end("cancelled", {"output": None})

    def end(self, status: str, final: dict[str, Any]) -> None:
        if self.status in _ENDED:
            return
        for request in sorted(self.open, key=lambda request: request.number):
            if request.type in ENDINGS:
                continue
            if not request.sent:
                self.skip(request, "execution_ended", "abandoned")
            elif request.type == "activity.scheduled":
                self.finish(request, {}, "abandoned")
        self.endings, self.completion = [], None
        self.ready = [request for request in self.ready if request.type in ENDINGS]
        self.status, self.final = status, {"status": status, **final}
