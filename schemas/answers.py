"""The answers of memory and conversation requests, as an execution sees them."""

from schemas.data import Answer, Object


class NodeAnswered(Answer):
    """`outputs` are what later references find under the node's id; `done` is always among them."""

    outputs: Object


class NodeSkipped(Answer):
    """The request was not carried out: `port_absent`, `expected_version_absent` or `execution_ended`."""

    code: str
    message: str


class NodeFailed(Answer):
    """The request was refused; references to the node are null."""

    code: str
    message: str
