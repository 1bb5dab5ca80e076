"""The JSON schema for editors: it accepts every valid file that this repository has, and refuses what is misspelt."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from statelib.cli.main import app
from statelib.definition.reference.editor_schema import editor_schema
from statelib.definition.reference.keys import keys
from tests.support.worlds import CHECKOUT
from tests.unit.definition.test_bad_pipelines import GOOD

SHIPPED = sorted((CHECKOUT / "dags" / "pipelines").glob("*.yaml"))
SHORT_FORMS = """\
name: all
source:
  path: x/{start}
  options: {header: true, depth: 3, sep: ";"}
  columns: {k: string, v: {type: long, expr: a + b}}
key: k
states:
  a: {kind: value, value: {agg: last, of: v, by: k}}
  b: {kind: value, fields: {n: long}, function: "a.b:c"}
checks:
  drift: {entries: {most: 20%}, size_bytes: {most: 0.5}}
  expectations: [{state: a, expect: column_values_to_be_null, column: k, mostly: 0.9}]
backend: heap
"""


def validator() -> jsonschema.Draft202012Validator:
    schema = editor_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def as_an_editor_reads(text: str) -> Any:
    """Return the file as an editor reads it: dates are text."""
    return json.loads(json.dumps(yaml.safe_load(text), default=str))


@pytest.mark.parametrize("text", [*(path.read_text() for path in SHIPPED), GOOD, SHORT_FORMS])
def test_a_valid_file_is_valid_for_an_editor(text: str) -> None:
    assert [error.message for error in validator().iter_errors(as_an_editor_reads(text))] == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("parallelism: 2", "paralelism: 2"),
        ("backend: rocksdb", "backend: forst"),
        ("user_key: dest", "userkey: dest"),
        ("distance: long", "distance: {type: long, expression: x}"),
        ("name: flights\n", ""),
    ],
)
def test_a_mistake_is_marked(old: str, new: str) -> None:
    assert list(validator().iter_errors(as_an_editor_reads(GOOD))) == []
    assert list(validator().iter_errors(as_an_editor_reads(GOOD.replace(old, new, 1))))


def test_every_key_has_a_description() -> None:
    described = json.dumps(editor_schema())
    for key in keys():
        assert json.dumps(key.description)[1:-1] in described, key.path


def test_the_command_prints_the_schema(tmp_path: Path) -> None:
    printed = CliRunner().invoke(app, ["pipelines", "schema"])
    assert json.loads(printed.stdout) == json.loads(json.dumps(editor_schema()))
    assert not re.search(r"\$ref|x-short-form", printed.stdout)


def schemas_with_defaults(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield each part of a schema that has a default."""
    if isinstance(schema, dict):
        if "default" in schema:
            yield schema
        for part in schema.values():
            yield from schemas_with_defaults(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from schemas_with_defaults(part)


def test_an_editor_may_insert_every_default() -> None:
    for schema in schemas_with_defaults(editor_schema()):
        jsonschema.validate(schema["default"], schema)
