"""State with recorded true contents, restored by a real Flink and written by it in forms that no fixture has."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from statelib.savepoints.lines import export_all_lines
from statelib.savepoints.opened import open_checkpoint
from tests.interop.flink_kit import Case, Flink, NoFlink, Order, flink
from tests.interop.real_fixtures import ROOT, about, to_see, truth
from tests.interop.seen_lines import comparable
from tests.support.extent import large

NATIVE, CANONICAL, CHECKPOINT = "NATIVE", "CANONICAL", "CHECKPOINT"
INCREMENTAL = {"execution.checkpointing.incremental": "true"}
LZ4 = {"state.backend.rocksdb.compression.per.level": "LZ4_COMPRESSION"}
FRAMED = {"execution.checkpointing.snapshot-compression": "true"}
HEAP_TIMERS = {"state.backend.rocksdb.timer-service.factory": "HEAP"}
PARTITIONED = {"state.backend.rocksdb.memory.partitioned-index-filters": "true"}
MERGED = {"execution.checkpointing.file-merging.enabled": "true"}


@dataclass(frozen=True)
class Form:
    fixture: str
    backend: str
    parallelism: int
    forms: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)


CORE = [
    Form("kryo-hashmap-canonical", "hashmap", 2, (NATIVE,)),
    Form("kinds-hashmap-canonical-p4-files", "rocksdb", 3, (CHECKPOINT, NATIVE), LZ4 | INCREMENTAL),
    Form("timers-hashmap-canonical", "rocksdb", 2, (CHECKPOINT, CANONICAL), HEAP_TIMERS),
]
MORE = [
    Form("kinds-hashmap-canonical-p1", "rocksdb", 2, (CHECKPOINT, CHECKPOINT, NATIVE), INCREMENTAL | FRAMED),
    Form("windows-hashmap-canonical", "rocksdb", 2, (CHECKPOINT, NATIVE), INCREMENTAL),
    Form("windows-hashmap-canonical", "rocksdb", 2, (CHECKPOINT, CHECKPOINT), INCREMENTAL | MERGED),
    Form("values-hashmap-canonical", "rocksdb", 2, (CHECKPOINT, NATIVE), LZ4 | PARTITIONED),
    Form("values-hashmap-canonical", "hashmap", 2, (CHECKPOINT, NATIVE), FRAMED),
    Form("sql-join-hashmap-canonical", "hashmap", 2, (CHECKPOINT, NATIVE)),
    Form("sql-groupby-rocksdb-canonical", "rocksdb", 2, (CHECKPOINT, NATIVE)),
    Form("ttl-hashmap-canonical", "hashmap", 2, (CHECKPOINT, NATIVE)),
    Form("maxpar32768-hashmap-canonical", "hashmap", 2, (CHECKPOINT,), FRAMED),
    Form("empty-state-hashmap-canonical", "rocksdb", 2, (CHECKPOINT, NATIVE, CANONICAL)),
    Form("keys-pojo-hashmap-canonical", "hashmap", 2, (NATIVE,)),
]


def read(path: Path, fixture: str) -> list[str]:
    """Return the content of the fixture's own operators as sorted lines, with their uids."""
    record = about(fixture)
    uids = {hex_id: uid for uid, hex_id in record["operatorIds"].items()}
    own = {operator["uid"] for operator in record["operators"]}
    root = str(path.parents[2] if path.name.startswith("chk-") else path)
    lines = []
    for line in export_all_lines(open_checkpoint(str(path), relocate={f"file:{root}": root}), None):
        entry = json.loads(line)
        entry["op"] = uids.get(entry["op"], entry["op"])
        if entry["op"] in own:
            lines.append(plain(entry))
    return comparable(lines)


def plain(entry: dict[str, object]) -> str:
    """Return the line without times of last access, which the recorded truth leaves out; of a value that only Kryo
    can read, only its place."""
    value = entry.get("value")
    if isinstance(value, dict) and value.get("type") == "ttl":
        entry["value"] = value["v"]
    if isinstance(value, dict) and (value["type"] == "opaque" or str(value["type"]).startswith("kryo:")):
        assert value.get("hex") or "hex" not in value
        entry["value"] = None
    return json.dumps(entry)


def check(real: Flink, forms: Sequence[Form], target: Path) -> None:
    orders = []
    for number, form in enumerate(forms):
        fixture = f"{real.version}/{form.fixture}"
        directory = next((ROOT / fixture).glob("savepoint-*/_metadata")).parent
        case = Case(directory, to_see(fixture), form.backend, form.parallelism, 0, allow_non_restored_state=True)
        orders.append(Order(case, target / str(number), form.forms, form.settings))
    for form, written in zip(forms, real.write_again(orders), strict=True):
        expected = comparable(plain(json.loads(line)) for line in truth(f"{real.version}/{form.fixture}"))
        for kind, path in zip(form.forms, written, strict=True):
            assert read(path, f"{real.version}/{form.fixture}") == expected, (form, kind)


def test_a_selection_of_forms_written_by_flink_1_is_read(tmp_path: Path, flink_1: Flink) -> None:
    check(flink_1, CORE, tmp_path)


@large("make test has a selection of the set")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", ["1.20.5", "2.3.0"])
def test_all_forms_written_by_flink_are_read(tmp_path: Path, version: str) -> None:
    forms = [form for form in CORE + MORE if (ROOT / version / form.fixture).exists()]
    try:
        check(flink(version), forms, tmp_path)
    except NoFlink as reason:
        pytest.skip(str(reason))
