"""Every stable code that a dead letter, a refusal or a skipped node may carry, with what to do about it.

A code is never reused for another meaning. A contract test holds that no other code is in use.
"""

from collections.abc import Mapping

CODES: Mapping[str, str] = {
    # The record and its envelope.
    "malformed": "the bytes are not UTF-8 JSON, or hold an unpaired surrogate: correct the publisher",
    "too_deep": "the JSON is nested deeper than 64 levels: flatten it",
    "too_large": "the record is over 4 MiB: store the value elsewhere and publish a reference",
    "envelope_invalid": "a CloudEvents attribute is missing or wrong: the message names it",
    "unknown_type": "no such event type on this topic: the message lists near ones",
    "subject_required": "set the attribute subject to the execution's id",
    "data_invalid": "a field of data is missing, unknown or of the wrong kind: the message names it",
    "id_reused": "the same tenant, source and id came before with other content: give each event its own id",
    "outcome_expired": "the command came again after its outcome was deleted: publish it under a new id if it is meant",
    # Names and addresses.
    "name_invalid": "a node or variable cannot be called so: use 1 to 256 characters without . { } |",
    "reserved_name": "the name belongs to the store itself: choose another",
    "address_invalid": "a part of the item's address is empty or holds control characters",
    "address_too_long": "the item's address is over 1,024 bytes: shorten id or key",
    # Templates, mappings, conditions.
    "template_invalid": "a reference cannot be read: write {{a.b.0.c}} or {{a.b || c.d}}",
    "condition_invalid": "the condition cannot be read: the message points at the place",
    "comparison_invalid": "the two values have no such comparison: the message shows them; guard it or compare a part",
    "target_not_an_object": "a dotted mapping target lies under a value that is no object: map it elsewhere",
    "targets_overlap": "two mapping targets write the same place: map one of them elsewhere",
    "max_items_invalid": "max_items is 1 to 1,000, or left out for 20",
    "max_chars_invalid": "max_chars is at least 1, or left out for 1,200",
    "collection_invalid": "a ForEach needs a list: the message says what came instead",
    "loop_unknown": "the ForEach node of the iteration was never opened: publish foreach.open first",
    "output_too_large": "an activity's output is over 512 KiB: store a reference",
    "store_too_large": "the execution's store would exceed 8 MiB: store references",
    "result_too_large": "a resolved value is over 1 MiB: reference a part of it",
    # Executions.
    "already_started": "the execution was started before by another event: use a new execution id",
    "contract_violated": "an input or output that the contract requires is missing or of another type",
    "unknown_parent": "no execution has the parent's id: start the parent first, then replay the dead letter",
    "fork_unknown": "the execution or revision to fork from is not known: check both",
    "subject_unknown": "the run has no subject of that kind: pass it in execution.started, or name {kind, id}",
    "workflow_mismatch": "a run may only use the private memory of its own workflow: leave workflow out",
    # Why a request was skipped.
    "already_ended": "the activity ended before its inputs were bound: nothing to do",
    "port_absent": "the port that the request waits for was not emitted: nothing to do",
    "expected_version_absent": "the version to compare with came out null: the write was not made unconditional",
    "execution_ended": "the execution ended before the request could go ahead: nothing to do",
    # Durable memory.
    "expected_version_required": "a conditional write needs expected_version: wire the reader's version into it",
    "expected_version_invalid": "expected_version came out as something else than a whole number from 0",
    "workflow_required": "scope workflow needs the workflow's name; scope shared must not have one",
    "type_unknown": "no such type: use a primitive, Json, T[] or a registered object type",
    "type_mismatch": "the value does not conform to the type: the message names the place",
    "conversion_failed": "the stored value cannot be read as that type: read it as stored, or forget it first",
    "value_too_large": "a value is limited to 256 KiB of compact JSON: keep documents elsewhere",
    "ttl_invalid": "give ttl and ttl_unit together, from one second to 100 years, or ttl: keep",
    "operation_invalid": "the update lacks what its operation needs, or does not fit the stored value",
    "number_too_large": "the number would need more digits than can be kept exactly",
}
