"""``statelib hexdump`` on a deployment: metadata, every kind of stream, and damage."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from statelib.flows.wiring import Deployment
from statelib.model.handles import ByteStreamStateHandle
from statelib.savepoints.opened import open_checkpoint
from tests.integration.foreign import FLINK, savepoint
from tests.integration.shop import SALES, open_shop, sales
from tests.integration.shop_cli import call, refused, said
from tests.support.worlds import checkpoint_of, new_deployment

KINDS = savepoint("1.20.5/kinds-hashmap-canonical-p1")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    return open_shop(tmp_path_factory.mktemp("shop"))


def own_files(deployment: Deployment, name: str) -> list[str]:
    opened = open_checkpoint(f"{deployment.storage_root}/{name}", own=True, storage_root=deployment.storage_root)
    return [s.name if isinstance(s, ByteStreamStateHandle) else s.path for s in opened.streams()]


def test_metadata_of_statelib_are_dumped_as_a_whole_with_the_manifest(shop: Deployment) -> None:
    answer = json.loads(said(shop, "hexdump", "sales/5", "--json"))
    (part,) = answer["parts"]
    data = Path(shop.storage_root, "sales", "chk-5", "_metadata").read_bytes()
    assert "".join(field["hex"] for field in part["fields"]) == data.hex()
    assert (answer["size_bytes"], part["problem"], part["stopped_at"]) == (len(data), None, len(data))
    named = {(*field["part"], field["name"]): field["value"] for field in part["fields"]}
    assert named["operator 0", "max parallelism"] == 128
    assert named["manifest", "version"] == 1
    assert all(field["name"] for field in part["fields"])


@pytest.mark.parametrize("columns", [80, 160])
def test_no_line_is_wider_than_the_terminal(shop: Deployment, columns: int) -> None:
    lines = said(shop, "hexdump", "sales/5", columns=columns).splitlines()
    fields = [line for line in lines if re.match(r"[0-9a-f]{8}  ", line)]
    assert max(map(len, fields)) <= columns
    assert any(re.search(r"^00000000  49 60 67 2d +magic = 0x4960672d$", line) for line in fields)


@pytest.mark.parametrize("checkpoint", ["sales/chk-5", "tours/chk-1"])
def test_every_file_of_a_checkpoint_can_be_dumped(shop: Deployment, checkpoint: str) -> None:
    files = own_files(shop, checkpoint)
    assert files
    for file in files:
        answer = json.loads(said(shop, "hexdump", f"{shop.storage_root}/{checkpoint}", "--file", file, "--json"))
        assert all(part["problem"] is None for part in answer["parts"])
        assert sum(part["size_bytes"] for part in answer["parts"]) == answer["size_bytes"] > 0


def test_a_range_of_bytes_can_be_dumped(shop: Deployment) -> None:
    shown = said(None, "hexdump", KINDS, "--offset", 0x2A, "--length", 8, columns=80).splitlines()
    rows = [line for line in shown if re.match(r"[0-9a-f]{8}  ", line)]
    assert rows[0].startswith("0000002a  00 01  ")
    assert rows[1].split() == ["0000002c", "00", "00", "00", "80", "max", "parallelism", "=", "128"]
    assert [row.split()[0] for row in rows] == ["0000002a", "0000002c", "00000030", "00000031"]


def test_damage_is_shown_at_its_offset(tmp_path: Path) -> None:
    data = bytearray((KINDS / "_metadata").read_bytes())
    data[0x41] = 99
    (tmp_path / "_metadata").write_bytes(data)
    result = call(None, "hexdump", tmp_path, columns=80)
    assert result.exit_code == 1
    assert "[keyed state]" in result.stdout
    assert "stopped at offset 0x42" in result.stdout
    assert "unknown handle tag 99 at offset 65" in result.stdout
    assert re.search(r"^> 00000040  00 63 ", result.stdout, re.MULTILINE)


def test_a_truncated_file_is_dumped_up_to_its_end(tmp_path: Path) -> None:
    deployment = open_shop(tmp_path)
    directory = Path(deployment.storage_root, "sales", "chk-5")
    file = next(path for path in sorted(directory.iterdir()) if path.name != "_metadata")
    file.write_bytes(file.read_bytes()[:100])
    result = call(deployment, "hexdump", "sales/5", "--file", file.name)
    assert result.exit_code == 1
    assert "100 bytes" in result.stdout
    assert "found 100" in result.stderr
    assert "version = 6" in result.stdout
    metadata = directory / "_metadata"
    metadata.write_bytes(metadata.read_bytes()[:50])
    result = call(deployment, "hexdump", "sales/5", "--file", file.name)
    assert result.exit_code == 1
    assert "nothing says what these bytes are" in result.stderr
    assert "content (100 bytes)" in result.stdout


def test_bad_options_are_refused(shop: Deployment) -> None:
    assert "no handle refers to a file 'nothing'" in refused(shop, "hexdump", "sales/5", "--file", "nothing")
    assert "expected 0 or more" in refused(shop, "hexdump", "sales/5", "--offset", "-1")
    assert "the size of" in refused(shop, "hexdump", "sales/5", "--offset", "99999999")
    assert "no checkpoint 99" in refused(shop, "hexdump", "sales/99")


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_change_logs_and_the_state_below_them_are_dumped(tmp_path: Path, backend: str) -> None:
    pipelines = tmp_path / "pipelines"
    pipelines.mkdir()
    text = SALES.replace("backend: heap", f"backend: {backend}")
    text = text.replace("inline_threshold_bytes: 1", "strategy: changelog, inline_threshold_bytes: 0")
    (pipelines / "sales.yaml").write_text(text)
    deployment = new_deployment(tmp_path, tmp_path, pipelines)
    checkpoint_of(deployment, "sales", 1, sales(0))
    checkpoint_of(deployment, "sales", 2, sales(6))
    titles = set()
    for file in own_files(deployment, "sales/chk-2"):
        answer = json.loads(said(deployment, "hexdump", "sales/2", "--file", file, "--json"))
        titles |= {part["title"].split(",")[0] for part in answer["parts"]}
        for part in answer["parts"]:
            assert part["problem"] is None
            if part["title"].startswith("change sets"):
                named = {field["name"] for field in part["fields"]}
                assert {"groups", "changes", "key group", "metadata", "content"} <= named
    assert {"change log", "change sets"} <= titles
    assert ("RocksDB meta stream" if backend == "rocksdb" else "canonical stream") in titles


def test_a_file_of_a_moved_snapshot_can_be_dumped() -> None:
    folder = FLINK / "1.20.5" / "rocksdb-incremental-chain"
    (last,) = folder.glob("checkpoints/*/chk-4")
    move = ("--relocate", f"file:///flink-data/1.20.5/1.20.5/{folder.name}={folder}")
    opened = open_checkpoint(str(last), relocate={move[1].partition("=")[0]: str(folder)})
    shared = [s.path for s in opened.streams() if not isinstance(s, ByteStreamStateHandle) and "/shared/" in s.path]
    answer = json.loads(said(None, "hexdump", last, "--file", shared[0].rpartition("/")[2], *move, "--json"))
    assert answer["parts"][0]["title"].startswith("RocksDB's file ")
    assert answer["size_bytes"] == Path(shared[0].removeprefix("file://")).stat().st_size
    assert answer["file"] == shared[0]
    assert "expected a file below" in refused(None, "hexdump", last, "--file", shared[0].rpartition("/")[2])


def dumped_streams(directory: Path, limit: int) -> list[dict[str, Any]]:
    """Return the parts of all streams of a savepoint's keyed state."""
    streams = [s for part in open_checkpoint(str(directory)).each_operator() for s in part.streams()]
    names = dict.fromkeys(s.name if isinstance(s, ByteStreamStateHandle) else s.path for s in streams)
    answers = [json.loads(said(None, "hexdump", directory, "--file", n, "--limit", limit, "--json")) for n in names]
    return [part for each in answers for part in each["parts"]]


def entries_of(parts: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Return (state, its fields) of each entry that was decoded."""
    entries: list[tuple[str, dict[str, Any]]] = []
    for part in parts:
        assert part["problem"] is None
        for field in part["fields"]:
            if field["type"] != "typed":
                continue
            if not entries or field["name"] in entries[-1][1] or "value" in entries[-1][1]:
                entries.append((field["part"][-1].removeprefix("state '").removesuffix("'"), {}))
            entries[-1][1][field["name"]] = json.loads(field["value"])
    return entries


def truth_of(directory: Path) -> list[dict[str, Any]]:
    lines = [
        json.loads(line) for line in (directory.parent / "truth.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    ]
    return [line for line in lines if "kg" in line]


@pytest.mark.parametrize("fixture", ["kinds-hashmap-canonical-p1", "compressed-hashmap-canonical"])
def test_the_entries_of_canonical_key_groups_are_those_that_the_job_wrote(fixture: str) -> None:
    directory = savepoint(f"1.20.5/{fixture}")
    entries = [
        {"state": state, **entry["key"], **member}
        for state, entry in entries_of(dumped_streams(directory, 10_000))
        for member in entry["value"]
    ]
    wanted = [{k: v for k, v in line.items() if k not in ("op", "kind")} for line in truth_of(directory)]
    assert len(wanted) > 100
    assert sorted(map(str, (sorted(f.items()) for f in entries))) == sorted(
        map(str, (sorted(w.items()) for w in wanted))
    )


def test_the_entries_of_heap_key_groups_are_those_that_the_job_wrote() -> None:
    directory = savepoint("1.20.5/kinds-hashmap-native-p2")
    entries = [
        (s, str(e["key"]), str(e["value"])) for s, e in entries_of(dumped_streams(directory, 10_000)) if "value" in e
    ]
    single = [line for line in truth_of(directory) if "value" in line and "uk" not in line and "idx" not in line]
    wanted = {(str(line["state"]), str(line["key"]), str(line["value"])) for line in single}
    assert len(wanted) > 50
    assert wanted <= set(entries)


@pytest.mark.parametrize(
    "fixture", ["kinds-hashmap-canonical-p1", "kinds-hashmap-native-p2", "compressed-hashmap-canonical"]
)
def test_only_a_limited_number_of_entries_is_decoded(fixture: str) -> None:
    parts = dumped_streams(savepoint(f"1.20.5/{fixture}"), 3)
    whole = [part for part in parts if "stream, key groups" in str(part["title"])]
    assert len(entries_of(parts)) == 3 * len(whole)
    assert any(field["name"] == "further entries" for part in parts for field in part["fields"])
    for part in parts:
        assert sum(field["size_bytes"] for field in part["fields"]) == part["size_bytes"]


def test_a_damaged_entry_is_shown_at_its_offset(tmp_path: Path) -> None:
    source = savepoint("1.20.5/kinds-hashmap-canonical-p4-files")
    copy = Path(shutil.copytree(source, tmp_path / source.name))
    file = max((path for path in copy.iterdir() if path.name != "_metadata"), key=lambda path: path.stat().st_size)
    (part,) = json.loads(said(None, "hexdump", copy, "--file", file.name, "--limit", 1, "--json"))["parts"]
    at = next(field["offset"] for field in part["fields"] if field["name"] == "state id")
    data = bytearray(file.read_bytes())
    data[at] = 0x77
    file.write_bytes(data)
    result = call(None, "hexdump", copy, "--file", file.name, "--limit", 1)
    assert result.exit_code == 1
    assert f"stopped at offset {at + 2:#x}" in result.stdout
    assert "state id 304" in result.stdout
