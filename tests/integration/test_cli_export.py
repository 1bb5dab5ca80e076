"""``statelib export``: what comes out is what is in there, for our own snapshots and for Flink's."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from statelib.flows.wiring import Deployment
from statelib.savepoints.opened import open_checkpoint
from tests.integration.foreign import FLINK, KEYED, savepoint, write_several_operators
from tests.integration.shop import environment, open_shop
from tests.integration.shop_cli import call, refused, said

SAVEPOINTS = [
    "1.20.5/kinds-hashmap-canonical-p1",
    "1.20.5/kinds-hashmap-canonical-p4-files",
    "1.20.5/keys-row-hashmap-canonical",
    "1.20.5/keys-tuple2-hashmap-canonical",
    "1.20.5/compressed-hashmap-canonical",
    "2.3.0/kinds-rocksdb-canonical-p1",
    "1.20.5/ttl-hashmap-canonical",
    "1.20.5/ttl-rocksdb-canonical",
    "2.3.0/ttl-hashmap-canonical",
]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    return open_shop(tmp_path_factory.mktemp("shop"))


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def typed(kind: str, value: object) -> str:
    return compact({"type": kind, "v": value})


@pytest.mark.parametrize("fixture", SAVEPOINTS)
def test_the_exported_lines_are_the_entries_that_the_flink_job_wrote(fixture: str) -> None:
    truth = (FLINK / fixture / "truth.jsonl").read_text(encoding="utf-8").splitlines()
    if fixture.startswith("1."):  # Metadata of version 4 have only the operator's id.
        truth = [line.replace('{"op":"keyed"', f'{{"op":"{KEYED}"', 1) for line in truth]
    lines = said(None, "export", savepoint(fixture), "--format", "typed-jsonl").splitlines()
    assert len(lines) > 100
    assert sorted(map(without_text, lines)) == sorted(map(without_text, truth))


def without_text(line: str) -> str:
    """Return a line in which floats are given by their bits alone: their text is Java's in one file and Python's in
    the other."""

    def bits_only(value: dict[str, object]) -> dict[str, object]:
        return {k: v for k, v in value.items() if k != "v"} if "bits" in value else value

    return compact(json.loads(line, object_hook=bits_only))


def test_the_lines_of_a_checkpoint_are_its_entries(shop: Deployment) -> None:
    """After the first day, shop n of 3 has sold n and n + 3, of tea if the number is even and of coffee if it is
    odd."""
    lines = said(shop, "export", "sales/1").splitlines()
    key_groups = {json.loads(line)["key"]["v"]: json.loads(line)["kg"] for line in lines}
    expected = []
    for n in range(3):
        head = f'"key":{typed("string", f"shop-{n}")},"kg":{key_groups[f"shop-{n}"]},"ns":null'
        total = [{"type": "long", "v": 2}, {"type": "long", "v": 2 * n + 3}]
        row = compact({"type": "row", "kind": "+I", "v": total})
        expected.append(f'{{"op":"sales","state":"total","kind":"value",{head},"value":{row}}}')
        for item in ("tea", "café"):
            at = f'{{"op":"sales","state":"per_item","kind":"map",{head},"uk":{typed("string", item)}'
            expected.append(f'{at},"value":{typed("long", 1)}}}')
            results = {json.loads(x)["value"]["v"]: json.loads(x)["idx"] for x in lines if '"items"' in x and head in x}
            assert sorted(results.values()) == [0, 1]
            at = f'{{"op":"sales","state":"items","kind":"list",{head},"idx":{results[item]}'
            expected.append(f'{at},"value":{typed("string", item)}}}')
    assert sorted(lines) == sorted(expected)


def test_one_state_can_be_exported_alone(shop: Deployment) -> None:
    every = said(shop, "export", "sales/5").splitlines()
    one = said(shop, "export", "sales/5", "--state", "total").splitlines()
    assert len(one) == 3
    assert sorted(one) == sorted(line for line in every if '"state":"total"' in line)
    line = refused(shop, "export", "sales/5", "--state", "totals")
    assert "'totals'" in line
    assert line.endswith("known states are items, per_item, total")


def test_the_output_file_has_the_same_lines_and_is_never_overwritten(shop: Deployment, tmp_path: Path) -> None:
    target = tmp_path / "lines.jsonl"
    assert said(shop, "export", "sales/5", "-o", target) == ""
    assert target.read_text(encoding="utf-8") == said(shop, "export", "sales/5")
    target.write_text("mine")
    assert refused(shop, "export", "sales/1", "-o", target) == f"statelib: {target} exists already"
    assert target.read_text() == "mine"
    assert "no/such: No such file or directory" in refused(shop, "export", "sales/1", "-o", tmp_path / "no/such")


@pytest.mark.parametrize("form", ["typed-jsonl", "jsonl", "parquet"])
def test_the_object_store_is_refused_as_the_place_of_an_export(
    shop: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.chdir(tmp_path)
    line = refused(shop, "export", "sales/1", "--format", form, "-o", "s3://bucket/out", status=2)
    assert line == "statelib: --output s3://bucket/out: expected a path on this machine, found a URI"
    assert list(tmp_path.iterdir()) == []


def test_the_output_file_of_a_failed_export_is_removed(tmp_path: Path) -> None:
    write_several_operators(tmp_path / "savepoint")
    target = tmp_path / "lines.jsonl"
    for words in ([], ["-o", target]):
        line = refused(None, "export", tmp_path / "savepoint", *words)
        assert "LongSerializeX$" in line
        assert str(tmp_path / "savepoint") in line
    assert not target.exists()


def test_a_file_that_is_missing_is_named_with_what_to_do(tmp_path: Path) -> None:
    copied = tmp_path / "savepoint"
    shutil.copytree(savepoint("1.20.5/kinds-hashmap-canonical-p4-files"), copied)
    gone = next(file for file in sorted(copied.iterdir()) if file.name != "_metadata")
    gone.unlink()
    for words in (("export", copied), ("query", copied, "SELECT count(*) FROM value")):
        result = call(None, *words)
        assert result.exit_code == 1
        assert f"{gone.name}: No such file" in result.stderr
        assert "hint: statelib verify names all files that are missing" in result.stderr


def test_an_export_of_all_operators_continues_after_one_that_cannot_be_written(tmp_path: Path) -> None:
    """The third of four operators has an unknown serializer."""
    write_several_operators(tmp_path / "savepoint")
    result = call(None, "export", tmp_path / "savepoint", "--all")
    assert result.exit_code == 1
    assert len({json.loads(line)["op"] for line in result.stdout.splitlines()}) == 2
    assert "LongSerializeX$" in result.stderr
    shown = call(None, "inspect", tmp_path / "savepoint")
    assert shown.exit_code == 0
    assert "LongSerializeX$" in shown.stdout
    assert shown.stdout.count("key ") >= 2


def test_values_of_a_users_class_are_exported_as_bytes_from_a_stream_with_lengths() -> None:
    """A canonical savepoint stores the length of every value, so nothing is left out."""
    result = call(None, "export", savepoint("1.20.5/kryo-hashmap-canonical"), "--all")
    assert result.exit_code == 0


def test_parquet_files_have_the_table_of_to_arrow(shop: Deployment, tmp_path: Path) -> None:
    for number, name in ((5, "sales"), (1, "tours")):
        target = tmp_path / name / "out"
        printed = said(shop, "export", f"{name}/{number}", "--format", "parquet", "-o", target).splitlines()
        opened = open_checkpoint(f"{shop.storage_root}/{name}/chk-{number}")
        names = [state.name for state in opened.schema().states]
        assert printed == [f"{target}/{state}.parquet" for state in names]
        assert sorted(path.name for path in target.iterdir()) == sorted(f"{state}.parquet" for state in names)
        for state in names:
            expected = opened.to_arrow(state)
            assert len(expected) in (3, 6)
            assert pq.read_table(target / f"{state}.parquet").equals(expected)


def test_parquet_files_are_never_overwritten(shop: Deployment, tmp_path: Path) -> None:
    command = ("export", "sales/5", "--format", "parquet", "-o", tmp_path)
    (tmp_path / "per_item.parquet").write_text("mine")
    assert refused(shop, *command) == f"statelib: {tmp_path}/per_item.parquet exists already"
    assert [path.name for path in tmp_path.iterdir()] == ["per_item.parquet"]
    assert (tmp_path / "per_item.parquet").read_text() == "mine"
    said(shop, *command, "--state", "total")
    file = tmp_path / "total.parquet"
    assert refused(shop, *command[:-1], file) == f"statelib: {file} exists already"


def test_bad_options_are_refused(shop: Deployment) -> None:
    assert refused(shop, "export", "sales/1", "--format", "csv").endswith(
        "'csv': expected typed-jsonl, jsonl or parquet"
    )
    result = call(shop, "export", "sales/1", "--format", "parquet")
    assert (result.exit_code, result.stderr.splitlines()[1:]) == (2, ["  hint: add -o DIRECTORY"])


def test_several_operators_are_exported_together_as_lines_only(tmp_path: Path) -> None:
    """Each line names its operator; Parquet has no place for that, so one operator must be selected."""
    source = tmp_path / "savepoint"
    write_several_operators(source, readable=True)
    ids = ["01" + "ab" * 15, "02" + "ab" * 15]
    lines = {name: said(None, "export", source, "--operator", name).splitlines() for name in ids}
    assert said(None, "export", source).splitlines() == lines[ids[0]] + lines[ids[1]]
    assert all({json.loads(line)["op"] for line in lines[name]} == {name} for name in ids)
    parquet = ("--format", "parquet", "-o", tmp_path / "out")
    assert refused(None, "export", source, *parquet).endswith(f"several operators hold keyed state: {', '.join(ids)}")
    assert said(None, "export", source, *parquet, "--operator", ids[1])
    line = refused(None, "export", source, "--operator", "04" + "ab" * 15)
    assert line.endswith(f"there are {', '.join(ids)}")


def test_plain_json_has_the_names_of_fields(shop: Deployment) -> None:
    """This form is for other programs: it has the field names of the pipeline file, and no types."""
    lines = [json.loads(line) for line in said(shop, "export", "sales/1", "--format", "jsonl").splitlines()]
    (total,) = [line for line in lines if line["state"] == "total" and line["key"] == "shop-1"]
    assert list(total) == ["operator", "state", "key_group", "key", "value"]
    assert list(total["value"].values()) == [2, 5]
    assert all(not name.startswith("f0") for name in total["value"])
    (items,) = [line for line in lines if line["state"] == "items" and line["key"] == "shop-1"]
    assert sorted(items["value"]) == ["café", "tea"]
    per_item = [line for line in lines if line["state"] == "per_item" and line["key"] == "shop-1"]
    assert {line["user_key"]: line["value"] for line in per_item} == {"café": 1, "tea": 1}


def test_lines_are_sorted_by_their_text(shop: Deployment) -> None:
    ordered = said(shop, "export", "sales/1").splitlines()
    assert ordered == sorted(ordered, key=lambda line: line.encode("utf-16-be"))
    stored = said(shop, "export", "sales/1", "--unsorted").splitlines()
    assert (sorted(stored), stored == ordered) == (sorted(ordered), False)


CHAIN = FLINK / "1.20.5" / "rocksdb-incremental-chain"
MOVED = f"file:///flink-data/1.20.5/1.20.5/{CHAIN.name}={CHAIN}"


def test_a_moved_checkpoint_is_exported_with_relocate(tmp_path: Path) -> None:
    """Only files in the places of the mapping are opened; every command accepts it."""
    checkpoints = sorted(CHAIN.glob("checkpoints/*/chk-*"))
    message = refused(None, "export", checkpoints[-1], "--all")
    assert "handle of '/flink-data/1.20.5/" in message
    assert f"expected a file below {checkpoints[-1]}" in message
    lines = said(None, "export", checkpoints[-1], "--all", "--relocate", MOVED).splitlines()
    truth = (CHAIN / "truth.jsonl").read_text(encoding="utf-8").splitlines()
    named = [line.replace(f'"op":"{KEYED}"', '"op":"keyed"', 1) for line in lines]
    assert [line for line in named if line.startswith('{"op":"keyed"')] == truth
    assert "SourceReaderState" in "".join(set(named) - set(truth))
    said(None, "inspect", checkpoints[-1], "--relocate", MOVED)
    assert "whole" in said(None, "verify", checkpoints[-1], "--relocate", MOVED)
    both = ("checkpoints", "diff", checkpoints[0], checkpoints[-1], "--operator", KEYED)
    assert "differs" in said(None, *both, "--relocate", MOVED)
    twice = ("--relocate", MOVED, "--relocate", f"/flink-data/1.20.5/1.20.5/{CHAIN.name}/checkpoints={tmp_path}")
    assert "No such file" in refused(None, "export", checkpoints[-1], *twice, status=1) or tmp_path.exists()
    for bad in ("x", "=y", "/x=", "relative=/y"):
        assert "OLD_PREFIX" in call(None, "export", checkpoints[-1], "--relocate", bad).stderr


def test_a_change_log_without_the_type_of_its_keys_needs_an_option() -> None:
    log = FLINK / "1.20.5" / "rocksdb-changelog"
    path = sorted(log.glob("checkpoints/*/chk-*"))[-1]
    command = ("export", path, "--relocate", f"file:///flink-data/1.20.5/1.20.5/{log.name}={log}")
    result = call(None, *command)
    assert (result.exit_code, "--key-type long" in result.stderr) == (2, True)
    assert len(said(None, *command, "--key-type", "long").splitlines()) > 300


def test_a_rewritten_savepoint_of_a_pipeline_can_be_read(shop: Deployment, tmp_path: Path) -> None:
    """It keeps the source position, which otherwise comes with a manifest."""
    two_names = ("--rename-operator", "sales=a", "--rename-operator", "sales=b")
    assert "--rename-operator sales=... is given twice" in refused(
        shop, "savepoint", "rewrite", "sales/4", "-t", tmp_path, *two_names
    )
    said(shop, "savepoint", "rewrite", "sales/4", "-t", tmp_path, "--drop-state", "sales/items")
    rewritten = tmp_path / "savepoint-rewritten-1"
    assert "0 damaged" in call(shop, "verify", rewritten).stderr
    lines = [json.loads(line) for line in said(shop, "export", rewritten, "--format", "jsonl").splitlines()]
    original = [json.loads(line) for line in said(shop, "export", "sales/4", "--format", "jsonl").splitlines()]
    expected = [(line["state"], line["key"]) for line in original if line["state"] != "items"]
    assert sorted((line["state"], line["key"]) for line in lines) == sorted(expected)
    assert "has no statelib manifest" in refused(shop, "restore", "sales", str(rewritten), "--dry-run")


def test_a_reader_that_has_enough_is_no_failure(shop: Deployment) -> None:
    command = [sys.executable, "-m", "statelib", "export", "sales", "--unsorted"]
    export = subprocess.Popen(
        command, env=os.environ | environment(shop), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert export.stdout
    export.stdout.close()
    assert export.stderr
    assert (export.stderr.read(), export.wait()) == ("", 0)
