"""Operator state of real Flink jobs contains exactly the elements that the jobs recorded, compressed or not."""

import json

import pytest

from statelib.formats.metadata.metadata_file import decode_metadata
from statelib.formats.operator_state import OperatorStream
from statelib.formats.text.typed_json import operator_lines
from statelib.model.handles import ByteStreamStateHandle
from statelib.model.operator_state import OperatorStateMode
from tests.golden.flink_fixtures import ROOT, Json

OPERATORS = ("opstate", "broadcast")
FIXTURES = [("1.20.5/opstate-canonical-p2", 2), ("2.3.0/opstate-canonical-p2", 2)]
FIXTURES += [("1.20.5/compressed-hashmap-full-checkpoint", 0)]
SNAPSHOT = {"1.20.5/compressed-hashmap-full-checkpoint": "_metadata"}
KINDS = ("opList", "opUnion", "broadcast")


def bits_only(value: Json) -> Json:
    return {k: v for k, v in value.items() if k != "v"} if "bits" in value else value


def compact(line: str) -> str:
    return json.dumps(json.loads(line, object_hook=bits_only), sort_keys=True)


@pytest.mark.parametrize(("fixture", "copies"), FIXTURES)
def test_every_element_equals_that_of_the_job(fixture: str, copies: int) -> None:
    folder = ROOT / fixture
    uids = {hex_id: uid for uid, hex_id in json.loads((folder / "about.json").read_text())["operatorIds"].items()}
    path = next(folder.rglob(SNAPSHOT.get(fixture, "savepoint-*/_metadata")))
    lines: list[str] = []
    broadcast: dict[str, list[list[str]]] = {}
    for operator in decode_metadata(path.read_bytes())[0].operators:
        uid = uids[operator.operator_id.hex()]
        for _, state in operator.subtasks:
            if state.operator is None or uid not in OPERATORS:
                continue
            assert isinstance(state.operator.stream, ByteStreamStateHandle)
            stream = OperatorStream(state.operator, state.operator.stream.data)
            for descriptor in stream.descriptors:
                lines_read = sorted(operator_lines(uid, descriptor, stream.stored(descriptor)))
                if descriptor.mode is OperatorStateMode.BROADCAST:
                    broadcast.setdefault(descriptor.name, []).append(lines_read)
                else:
                    lines += lines_read
    assert all(len(lines_read) == copies and lines_read[0] == lines_read[-1] for lines_read in broadcast.values()), (
        "the same everywhere"
    )
    lines += [line for lines_read in broadcast.values() for line in lines_read[0]]
    truth = [line for line in (folder / "truth.jsonl").read_text().splitlines() if json.loads(line)["kind"] in KINDS]
    assert len(truth) >= 27
    assert sorted(map(compact, lines)) == sorted(map(compact, truth))
