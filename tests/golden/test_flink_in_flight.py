"""Unaligned checkpoints: their state is read (``test_flink_exports.py``), and their in-flight records are reported."""

import pytest

from statelib.errors import InvalidRequestError
from statelib.formats.metadata.metadata_file import decode_metadata, encode_metadata
from statelib.model.types import LONG
from statelib.savepoints.operator_content import left_out
from tests.golden.flink_fixtures import ROOT, opened

EXPECTED = {
    "1.20.5": {
        "533b080bafa2c7465e4939fa63b9d8ae": (2, 8),
        "e7beec23fd9f6ed5e1b8395129d43728": (4, 415),
        "59fa767824610e31f4a11d6125e09bf4": (2, 533),
    },
    "2.3.0": {"keyed": (2, 3628), "slow": (2, 344)},
}
"""(handles, bytes) by operator, counted in Flink's own metadata."""


@pytest.mark.parametrize("version", ["1.20.5", "2.3.0"])
def test_records_in_flight_are_reported_by_operator(version: str) -> None:
    folder = ROOT / version / "hashmap-in-flight"
    (path,) = folder.glob("checkpoints/*/chk-*/_metadata")
    metadata, _ = decode_metadata(path.read_bytes())
    sizes = {}
    for operator in metadata.operators:
        states = [state for _, state in operator.subtasks]
        if handles := sum(state.channel_handles for state in states):
            sizes[operator.uid or operator.operator_id.hex()] = handles, sum(state.channel_bytes for state in states)
    assert sizes == EXPECTED[version]
    in_flight = [line for line in left_out(opened(folder, key_type=LONG)) if "in flight" in line]
    assert in_flight == [
        f"{name}: {handles} handles of records in flight, {size} bytes (an unaligned checkpoint), not read"
        for name, (handles, size) in sizes.items()
    ]
    with pytest.raises(InvalidRequestError) as caught:
        encode_metadata(metadata)
    assert caught.value.kind == "channel-state"
