"""The bytes of a snapshot's files, wherever these files lie."""

import dataclasses
from pathlib import Path

from statelib.formats.manifest.trailer import append_manifest
from statelib.formats.metadata.metadata_file import encode_metadata
from statelib.formats.metadata.operator_id import operator_id
from statelib.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState, Origin
from statelib.model.handles import FileStateHandle, OperatorStreamStateHandle
from statelib.model.ids import CheckpointId, PipelineName
from statelib.savepoints.hexdump import dump_file
from tests.unit.formats.test_manifest import MANIFEST


def test_a_file_of_the_origin_of_a_fork_is_shown(tmp_path: Path) -> None:
    original = tmp_path / "sales" / "chk-3" / "data"
    directory = tmp_path / "flights" / "chk-17"
    for folder in (original.parent, directory):
        folder.mkdir(parents=True)
    original.write_bytes(b"of the origin")
    stream = FileStateHandle(f"file://{original}", original.stat().st_size)
    position = OperatorStreamStateHandle((("statelib.source-position", 0, (2,)),), stream)
    state = OperatorState(operator_id("keyed"), 1, 2, ((0, OperatorSubtaskState(operator=position)),))
    manifest = dataclasses.replace(MANIFEST, origins=(Origin(PipelineName("sales"), CheckpointId(3)),))
    metadata = encode_metadata(CheckpointMetadata(17, (state,)))
    (directory / "_metadata").write_bytes(append_manifest(metadata, manifest))
    dump = dump_file(f"file://{directory}", "data", f"file://{tmp_path}")
    assert b"".join(bytes(part.data) for part in dump.parts) == b"of the origin"
