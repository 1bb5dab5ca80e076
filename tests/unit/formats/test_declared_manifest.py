"""The declaration of the manifest: it has every field of the model, and the specification lists every field."""

import dataclasses
import re

import pytest

from statelib.formats.manifest import manifest_json
from statelib.formats.manifest.declared_json import Record
from statelib.model.checkpoint import CheckpointManifest, EventCounts, FileRecord, Origin, SegmentRecord
from statelib.model.operator_state import OperatorStateDescriptor
from statelib.model.state import FieldMeaning, KeyedStateSchema, StateDescriptor, StateStatistics
from tests.support.worlds import CHECKOUT

NOT_STORED = {"renamed_from", "needs_all_events"}
"""Fields that only the pipeline file determines."""
OF_COUNTS = {"keys_with_timers"}
"""Fields that the model has in the numbers of keys."""


@pytest.mark.parametrize(
    ("record", "model"),
    [
        (manifest_json.MANIFEST, CheckpointManifest),
        (manifest_json.FILE, FileRecord),
        (manifest_json.SEGMENT, SegmentRecord),
        (manifest_json.EVENTS, EventCounts),
        (manifest_json.ORIGIN, Origin),
        (manifest_json.SCHEMA, KeyedStateSchema),
        (manifest_json.STATE, StateDescriptor),
        (manifest_json.OPERATOR_STATE, OperatorStateDescriptor),
        (manifest_json.MEANING, FieldMeaning),
        (manifest_json.STATISTICS, StateStatistics),
    ],
)
def test_every_field_of_the_model_is_declared(record: Record[object], model: type) -> None:
    fields = {field.name for field in dataclasses.fields(model)} - NOT_STORED
    assert {field.argument for field in record.fields} - OF_COUNTS == fields


def test_the_specification_lists_every_field() -> None:
    text = (CHECKOUT / "docs/spec/formats.md").read_text().partition("\n## Manifest\n")[2]
    rows = re.findall(r"^\| (`[^|]+`) \|", text.partition("\nThe digest of")[0], re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(listed) == sorted(field.name for field in manifest_json.MANIFEST.fields)


def test_an_error_names_the_path_of_the_value_the_expected_and_the_found_one() -> None:
    content = {
        "path": "a",
        "size_bytes": 1,
        "crc32c": 2,
        "subtask": 0,
        "key_groups": [0, 1],
        "segments": [{"start": "x"}],
    }
    with pytest.raises(ValueError, match=r"^file\.segments\[0\]\.start: expected int, found 'x'$"):
        manifest_json.FILE.read(content, "file")
    with pytest.raises(ValueError, match=r"^file\.crc32c: missing$"):
        manifest_json.FILE.read({"path": "a", "size_bytes": 1}, "file")
    with pytest.raises(ValueError, match=r"^manifest\.kind: expected one of CHECKPOINT, SAVEPOINT, found 'x'$"):
        {field.name: field for field in manifest_json.MANIFEST.fields}["kind"].read({"kind": "x"}, "manifest")
