"""The text of the page's ``api.ts``: types in TypeScript, made from the OpenAPI document of the page's API.

It supports the schemas that the shapes of that API need. Every field of a shape is in every response, so no field of a
type is optional.
"""

import json
from typing import Any

from statelib_airflow.api.app import page_app

NOTICE = """\
// The responses of the page's API. Times are integer epoch milliseconds, sizes are bytes, what is absent is null.
// Written by `make docs` from plugins/statelib_airflow/api: change that, not this.
"""
_SIMPLE = {"boolean": "boolean", "integer": "number", "null": "null", "number": "number", "string": "string"}


def types() -> str:
    """Return the text of the file."""
    document = page_app().openapi()
    parts = [_declaration(name, schema) for name, schema in sorted(document["components"]["schemas"].items())]
    return "\n".join([NOTICE, *parts, _responses(document["paths"])])


def _declaration(name: str, schema: dict[str, Any]) -> str:
    comment = _comment(schema["description"])
    if schema["type"] != "object":
        return f"{comment}export type {name} = {type_of(schema)};\n"
    fields = "".join(f"  {field}: {type_of(part)};\n" for field, part in schema["properties"].items())
    return f"{comment}export interface {name} {{\n{fields}}}\n"


def _comment(docstring: str) -> str:
    text = docstring.replace("``", "`").replace("None", "null")
    if "\n" not in text:
        return f"/** {text} */\n"
    return "/**\n" + "".join(f" * {line}\n" for line in text.splitlines()) + " */\n"


def _responses(paths: dict[str, Any]) -> str:
    lines = []
    for path, methods in paths.items():
        schema = methods["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        lines.append(f"  {json.dumps(path.removeprefix('/api/'))}: {type_of(schema)};\n")
    comment = _comment("The response of each route, by its path below `api/`.")
    return f"{comment}export interface Responses {{\n{''.join(lines)}}}\n"


def type_of(schema: dict[str, Any]) -> str:
    """Return the type of a schema. Raise ValueError for a schema that no type is known for."""
    match schema:
        case {"$ref": reference}:
            return str(reference).rpartition("/")[2]
        case {"enum": words}:
            return " | ".join(map(json.dumps, words))
        case {"anyOf": parts}:
            return " | ".join(map(type_of, parts))
        case {"type": "array", "prefixItems": parts}:
            return f"[{', '.join(map(type_of, parts))}]"
        case {"type": "array", "items": {} as items}:
            inner = type_of(items)
            return f"({inner})[]" if " | " in inner else f"{inner}[]"
        case {"type": str() as name} if name in _SIMPLE:
            return _SIMPLE[name]
    raise ValueError(f"no type in TypeScript for the schema {schema}")
