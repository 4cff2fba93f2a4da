"""The life of an execution: it starts, ends once, and is finalized."""

from typing import Annotated, Literal

from pydantic import Field

from schemas.data import (
    Count,
    Data,
    Expected,
    Iteration,
    Json,
    LongText,
    Object,
    Outbound,
    Revision,
    Status,
    StoredText,
    Templates,
    Text,
)


class WorkflowRef(Data):
    """The workflow that an execution runs; its name scopes the workflow's private memory."""

    name: StoredText
    version: Annotated[str | int, Expected("a text or a whole number")] | None = None


class SubjectRef(Data):
    """Whom memory is about: a patient, a case, a person."""

    kind: LongText
    id: LongText


class ParentRef(Data):
    """The node of another execution that waits for this one."""

    execution_id: StoredText
    node_id: Text
    iteration: Iteration | None = None


class ContractField(Data):
    """One promised input or output; `type` is a type name of durable memory, such as `Decimal` or `String[]`."""

    name: Text
    type: Text
    required: bool = False


class Contract(Data):
    """What a reusable workflow takes and gives: checked at start and at end."""

    inputs: list[ContractField] = Field(default_factory=list)
    outputs: list[ContractField] = Field(default_factory=list)


class SimulatedItem(Data):
    """One memory item that a simulation starts with; without `version` it is version 1."""

    scope: Literal["workflow", "shared"] = "workflow"
    subject: Annotated[SubjectRef | Literal["workflow-global"], Expected('{kind, id} or "workflow-global"')]
    key: Text
    type: Text
    value: Json
    version: Annotated[int, Field(ge=1)] = 1


class Simulation(Data):
    """The run never changes memory; `memory` wins over what is really stored."""

    subject: SubjectRef | None = None
    memory: list[SimulatedItem] = Field(default_factory=list)


class ForkedFrom(Data):
    """The store starts as another execution's was at `revision`."""

    execution_id: StoredText
    revision: Revision


class ExecutionStarted(Data):
    """Opens the store, or gives the one that an early output opened its input."""

    workflow: WorkflowRef
    input: Object = Field(default_factory=dict)
    event: Json = None
    system: Object = Field(default_factory=dict)
    subjects: list[SubjectRef] = Field(default_factory=list)
    parent: ParentRef | None = None
    output_mapping: Templates | None = None
    contract: Contract | None = None
    simulation: Annotated[Simulation | bool, Expected("true or {subject?, memory?}")] | None = None
    forked_from: ForkedFrom | None = None

    @property
    def simulated(self) -> bool:
        """Tell whether the run must leave memory as it is."""
        return self.simulation is not None and self.simulation is not False


class ExecutionCompleted(Data):
    """Takes effect when nothing is outstanding; `output` may hold templates."""

    output: Json = None


class ExecutionFailed(Data):
    """Takes effect at once; `error` is whatever the engine knows."""

    error: Json


class ExecutionCancelled(Data):
    """Takes effect at once."""

    reason: str | None = None


class ExecutionFinalized(Outbound):
    """The last word about a store: said at the end, and again after each late revision.

    `variables` is left out above 512 KiB: `variables_bytes`, `variables_sha256` and `variables_at` (the command
    that shows it) stand for it. A simulated run's has `effects` too: what it would have changed, in its order; above
    1 MiB `effects_bytes`, `effects_sha256` and `effects_at` instead.
    """

    status: Status
    revision: Revision
    output: Json = None
    error: Json = None
    reason: str | None = None
    late: bool = False
    variables: Object | None = None
    variables_bytes: Count | None = None
    variables_sha256: str | None = None
    variables_at: str | None = None
    effects: list[Json] | None = None
    effects_bytes: Count | None = None
    effects_sha256: str | None = None
    effects_at: str | None = None


class ChildCompleted(Outbound):
    """Internal: a child ended; published to its parent's key under a derived id."""

    node_id: str
    iteration: Iteration | None = None
    child_execution_id: str
    status: Status
    outputs: Object
    error: Json = None
