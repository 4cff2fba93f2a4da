"""The AsyncAPI 3 document and the JSON Schemas: written from the catalog and the models, never by hand.

Seen from Tallystick: it *receives* what others publish and *sends* what others subscribe to.
"""

from importlib.resources import files
from typing import cast

from pydantic.json_schema import models_json_schema

import schemas
from schemas.data import Data
from schemas.exact_json import JsonObject, JsonValue, loads
from schemas.registry import ALL_TYPES, INTERNAL, TypeSpec
from topics.admin import configs_of
from topics.catalog import CATALOG, TopicSpec

#: The released version; the contract changes only with it, and with a changelog entry.
CONTRACT_VERSION = "0.1.0"
_SCHEMA_REF = "#/components/schemas/{model}"
_DESCRIPTION = (
    "CloudEvents 1.0 in structured JSON mode (binary mode is read too) over Kafka. Numbers are exact: parse them "
    "losslessly. The same tenant, source and id are the same event, applied once."
)
_ENVELOPE: JsonObject = {
    "type": "object",
    "description": "A CloudEvents 1.0 event in structured JSON mode.",
    "required": ["specversion", "id", "source", "type"],
    "properties": {
        "specversion": {"const": "1.0"},
        "id": {"type": "string", "minLength": 1, "maxLength": 1024},
        "source": {"type": "string", "minLength": 1, "maxLength": 1024},
        "type": {"type": "string"},
        "subject": {"type": "string", "description": "The execution id, for everything of an execution."},
        "time": {"type": "string", "description": "RFC 3339; informative only."},
        "tenant": {"type": "string", "default": "default", "description": "Nothing ever crosses it."},
        "replykey": {"type": "string", "description": "The key of a command's outcome."},
        "traceparent": {"type": "string", "description": "W3C trace context, passed on to everything caused."},
        "datacontenttype": {"const": "application/json"},
        "data": {"type": "object"},
    },
}


def document() -> JsonObject:
    """Return the AsyncAPI 3.0 document of this version of Tallystick."""
    public = [spec for spec in CATALOG if spec.direction != "internal"]
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Tallystick",
            "version": CONTRACT_VERSION,
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/cloudevents+json",
        "channels": {spec.topic.value: _channel(spec) for spec in public},
        "operations": {_operation_name(spec): _operation(spec) for spec in public},
        "components": {
            "messages": {name: _message(spec) for name, spec in sorted(ALL_TYPES.items()) if name not in INTERNAL},
            "schemas": {"CloudEvent": _ENVELOPE, **_model_schemas(_SCHEMA_REF)},
        },
    }


def json_schema(name: str) -> JsonObject:
    """Return a self-contained JSON Schema (draft 2020-12) of the whole event of one type."""
    spec = ALL_TYPES[name]
    definitions = _model_schemas("#/$defs/{model}", spec.models)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": name,
        **_payload(spec, "#/$defs/{model}", {"$ref": "#/$defs/CloudEvent"}),
        "$defs": {"CloudEvent": _ENVELOPE, **definitions},
    }


def _types_on(spec: TopicSpec) -> list[str]:
    return [name for name, of_type in ALL_TYPES.items() if spec.topic.value in of_type.topics and name not in INTERNAL]


def _channel(spec: TopicSpec) -> JsonObject:
    configs = configs_of(spec, replication=1)
    return {
        "address": f"tally.{spec.topic.value}",
        "description": f"Key: {spec.key}. Carries {spec.carries}.",
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in _types_on(spec)},
        "bindings": {
            "kafka": {
                "topicConfiguration": {
                    "cleanup.policy": [configs["cleanup.policy"]],
                    "retention.ms": int(configs["retention.ms"]),
                    "max.message.bytes": int(configs["max.message.bytes"]),
                }
            }
        },
    }


def _operation_name(spec: TopicSpec) -> str:
    return f"{'accept' if spec.direction == 'in' else 'publish'}-{spec.topic.value}"


def _operation(spec: TopicSpec) -> JsonObject:
    channel = f"#/channels/{spec.topic.value}"
    return {
        "action": "receive" if spec.direction == "in" else "send",
        "channel": {"$ref": channel},
        "summary": f"{', '.join(spec.producers)} -> {', '.join(spec.consumers)}",
        "messages": [{"$ref": f"{channel}/messages/{name}"} for name in _types_on(spec)],
    }


def _message(spec: TypeSpec) -> JsonObject:
    return {
        "name": spec.name,
        "title": spec.name,
        "summary": _first_line(spec.models[0]),
        "contentType": "application/cloudevents+json",
        "payload": _payload(spec, _SCHEMA_REF, {"$ref": "#/components/schemas/CloudEvent"}),
        "examples": [{"name": name, "payload": payload} for name, payload in examples(spec.name)],
    }


def _payload(spec: TypeSpec, reference: str, envelope: JsonObject) -> JsonObject:
    models: list[JsonValue] = [{"$ref": reference.format(model=model.__name__)} for model in spec.models]
    data: JsonValue = models[0] if len(models) == 1 else {"anyOf": models}
    return {"allOf": [envelope, {"type": "object", "properties": {"type": {"const": spec.name}, "data": data}}]}


def _first_line(model: type[Data]) -> str:
    return (model.__doc__ or "").strip().splitlines()[0]


def _model_schemas(reference: str, models: tuple[type[Data], ...] | None = None) -> JsonObject:
    wanted = models or tuple(dict.fromkeys(model for spec in ALL_TYPES.values() for model in spec.models))
    _, definitions = models_json_schema([(model, "validation") for model in wanted], ref_template=reference)
    return cast("JsonObject", definitions["$defs"])


def examples(name: str) -> list[tuple[str, JsonValue]]:
    """Return the examples of a type: name and whole event."""
    folder = files(schemas) / "examples" / name
    found = sorted(folder.iterdir(), key=lambda entry: entry.name)
    return [(entry.name.removesuffix(".json"), loads(entry.read_bytes())) for entry in found]
