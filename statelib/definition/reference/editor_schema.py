"""The JSON schema of a pipeline file, for editors: each key with its description, and each short form."""

from typing import Any

from statelib.definition.parts.model import SHORT_FORM
from statelib.definition.pipeline import Pipeline
from statelib.definition.reference.keys import DESCRIPTIONS, INTERNAL, LIKE

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def editor_schema() -> dict[str, Any]:
    """Return the JSON schema of a pipeline file (draft 2020-12), as values that JSON can represent.

    Every part is written out where it is used, so that each key has the description of its own place. A valid file may
    still be refused by :func:`~statelib.definition.pipeline.load_pipeline`, which also checks whether its parts fit
    together."""
    document = Pipeline.model_json_schema()
    part = _part(document, document["$defs"], "")
    for name in INTERNAL:
        del part["properties"][name]
    return {"$schema": _DIALECT, "title": "A pipeline of statelib", **part}


def _part(part: dict[str, Any], parts: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return the schema of a part of the file. ``prefix``: its path with a dot at the end."""
    properties = {}
    for name, field in part["properties"].items():
        path = f"{prefix}{name}"
        described = _inlined(field, parts, path)
        if path in DESCRIPTIONS:
            described["description"] = DESCRIPTIONS[path]
        properties[name] = described
    shape = {name: value for name, value in part.items() if name in ("type", "required", "additionalProperties")}
    return {**shape, "properties": properties}


def _inlined(field: dict[str, Any], parts: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the schema of one key, with the parts that it refers to written out."""
    if "$ref" in field:
        return _referred(parts[field["$ref"].rpartition("/")[2]], parts, path)
    result = {name: value for name, value in field.items() if name != "title"}
    if "anyOf" in field:
        result["anyOf"] = [_inlined(each, parts, path) for each in field["anyOf"]]
    if isinstance(field.get("items"), dict):
        result["items"] = _inlined(field["items"], parts, path)
    if isinstance(field.get("additionalProperties"), dict):
        result["additionalProperties"] = _inlined(field["additionalProperties"], parts, f"{path}.<name>")
    return result


def _referred(target: dict[str, Any], parts: dict[str, Any], path: str) -> dict[str, Any]:
    if "properties" not in target:
        return {name: value for name, value in target.items() if name in ("enum", "type")}
    part = _part(target, parts, f"{LIKE.get(path, path)}.")
    return {"anyOf": [{"type": "string"}, part]} if SHORT_FORM in target else part
